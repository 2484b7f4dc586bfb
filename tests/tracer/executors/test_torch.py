"""torch eager as an executor, against torch's own profiler and a network that we know."""

import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest

from tracer.analyzers.grouping import by_kernel
from tracer.analyzers.table import backward_share
from tracer.analyzers.timing import operation_table
from tracer.errors import InputError, UsageError
from tracer.executors.calls import Calls
from tracer.executors.eager import Measured, Overhead, profile_of
from tracer.executors.settings import EagerSettings

torch = pytest.importorskip("torch")

from tests.tracer.executors.nets_torch import Flat, Positions, Ranged, Toy  # noqa: E402
from tracer.containment.activity import silent  # noqa: E402
from tracer.executors.torch import executor as marks  # noqa: E402
from tracer.executors.torch.executor import executor  # noqa: E402

FEW = EagerSettings(runs=3, warmup=1, threads=1)
STEP = dataclasses.replace(FEW, backward=True)
X = np.random.default_rng(0).standard_normal((2, 2, 6, 6)).astype(np.float32)

FORWARD = [
    ("stem/conv2d", "stem", "conv2d"),
    ("block.0/conv2d", "block.0", "conv2d"),
    ("block.1/relu", "block.1", "relu"),
    ("block.0/conv2d#2", "block.0", "conv2d"),
    ("block.1/relu#2", "block.1", "relu"),
    ("norm/batch_norm", "norm", "batch_norm"),
    ("relu", "", "relu"),
    ("drop/dropout", "drop", "dropout"),
    ("flatten", "", "flatten"),
    ("fc/linear", "fc", "linear"),
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def rows(profiled):
    return [(o.node, o.module, o.op_type) for o in profiled.operations]


def test_rows_are_the_operators_that_each_module_calls():
    assert rows(executor.profile(Toy().eval(), [X], FEW, silent)) == FORWARD


def test_modules_are_named_as_the_exporter_names_them(tmp_path):
    pytest.importorskip("onnxscript")
    import onnx

    from tracer.api.export import export
    from tracer.graph.provenance import module_of

    export(Toy().eval(), tmp_path / "toy.onnx", input_shape=(1, 2, 6, 6))
    nodes = onnx.load(tmp_path / "toy.onnx").graph.node
    exported = {module_of(node) for node in nodes} - {"norm"}  # which is folded into another
    ours = {row[1] for row in FORWARD}
    assert exported <= ours
    assert {"stem", "block.0", "block.1", "fc", ""} <= exported


def test_the_sum_of_the_rows_is_within_the_run():
    run = executor.profile(Toy(), [X], FEW, silent).run
    assert run.samples.shape == (3, len(run.kernels))
    assert (run.samples >= 0).all()
    assert (run.samples.sum(axis=1) <= run.instrumented_us).all()
    assert (run.samples.sum(axis=1) > 0).all()
    assert len(run.wall_us) >= 5


def test_the_backward_pass_belongs_to_the_modules_of_the_forward_one():
    operators = rows(executor.profile(Toy(), [X], STEP, silent))
    counts = ("norm/add_", "norm", "add_")  # batches that were seen, which has no gradient
    forward = [row for row in operators if row[1] is not None and not row[0].endswith("(backward)")]
    assert [row for row in forward if row != counts] == FORWARD
    backward = [row for row in operators if row[0].endswith(" (backward)") and row[1] is not None]
    assert backward == [
        (f"{node} (backward)", module, f"{op} (backward)") for node, module, op in FORWARD[::-1]
    ]
    assert {row[0] for row in operators if row[1] is None} == {
        "loss/sum",
        "loss/sum (backward)",
        "backward/ones_like",
    }


def test_gradients_of_parameters_are_gathered_in_the_row_that_made_them():
    run = executor.profile(Toy(), [X], STEP, silent).run
    gathered = [k for k in run.kernels if k.op_type == "torch::autograd::AccumulateGrad"]
    owners = {str(kernel.node).partition("/")[0] for kernel in gathered}
    assert owners == {"stem", "block.0", "norm", "fc"}
    assert len(gathered) == len(list(Toy().parameters()))


RANGED = [
    ("mixing", "", "range"),
    ("fc/linear", "fc", "linear"),
    ("mixing/relu", "", "relu"),
    ("mixing/mixing/inner", "", "range"),
    ("mixing/mixing/inner/sigmoid", "", "sigmoid"),
    ("relu", "", "relu"),
]


def test_ranges_of_the_users_code_name_the_rows_inside_and_hide_none():
    profiled = executor.profile(Ranged(), [X[0, 0, :, :4]], FEW, silent)
    assert rows(profiled) == RANGED
    peaks = {row.node: row.peak_bytes for row in profiled.operations}
    assert (peaks["mixing"], peaks["mixing/relu"]) == (None, 6 * 4 * 4)
    assert operation_table(profiled)["calls"].tolist() == [1.0] * len(RANGED)
    kernels = by_kernel(profiled.run).set_index("op_type")
    inside = kernels.loc[["aten::linear", "mixing/inner"], "time_us_total"].sum()
    assert kernels.loc["mixing", "time_us_total"] >= inside
    assert kernels.loc["mixing", "time_total_share"] <= 1


def test_the_backward_pass_of_a_range_is_that_of_its_operators():
    operators = rows(executor.profile(Ranged(), [X[0, 0, :, :4]], STEP, silent))
    backward = [row[0] for row in operators if row[0].endswith(" (backward)")]
    assert backward[1:] == [f"{node} (backward)" for node, _, op in RANGED[::-1] if op != "range"]


def test_the_step_of_an_optimizer_is_one_row():
    settings = dataclasses.replace(STEP, optimizer="sgd")
    operators = rows(executor.profile(Ranged(), [X[0, 0, :, :4]], settings, silent))
    assert [row for row in operators if row[0].startswith("optimizer")] == [
        ("optimizer/SGD.step", None, "SGD.step")
    ]


def test_a_forward_pass_in_training_mode_uses_the_statistics_of_the_batch():
    train = dataclasses.replace(FEW, train=True)
    model = Toy().eval()
    counts = ("norm/add_", "norm", "add_")
    operators = rows(executor.profile(model, [X], train, silent))
    assert [row for row in operators if row != counts] == FORWARD
    modes, statistics = [], []
    model.register_forward_hook(lambda m, _, y: modes.append((m.training, y.requires_grad)))
    model.norm.register_forward_hook(lambda m, *_: statistics.append(m.running_mean.clone()))
    before, gradients, training = state(model)
    executor.profile(model, [X], train, silent)
    assert set(modes) == {(True, True)}
    assert not torch.equal(statistics[0], statistics[-1])
    after, gradients_after, training_after = state(model)
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert (gradients, training) == (gradients_after, training_after)


def test_training_mode_is_part_of_a_training_step_and_not_said_twice():
    with pytest.raises(UsageError, match="train is the forward pass of a training step"):
        dataclasses.replace(STEP, train=True)


@pytest.mark.parametrize("kind", [Toy, Ranged])
@pytest.mark.parametrize("backward", [False, True])
def test_kernels_are_the_table_that_torch_itself_makes_of_the_same_events(backward, kind):
    model, x = kind(), torch.tensor(X if kind is Toy else X[0, 0, :, :4])
    model(x).sum().backward()
    marked = marks.marked(model) if kind is Toy else nullcontext()  # torch's ranges exclude marks
    with marked, marks.recorded_events() as recorded, marks.mark(marks.RUN):
        loss = model(x).sum()
        if backward:
            loss.backward()
    calls = Calls("torch")
    calls.add(marks.runs(recorded)[0])
    far = [1e9] * 5  # a wall that no time has to be corrected to
    measured = Measured("torch", "cpu", [X], far, [1e9], Overhead(0.0, 0.0))
    ours = by_kernel(profile_of(calls, measured).run).set_index("op_type")
    theirs = {e.key: e for e in recorded.key_averages() if not e.key.startswith("tracer:")}
    assert set(ours.index) == set(theirs)
    assert len(theirs) > (20 if backward else 8)
    for name, event in theirs.items():
        row = ours.loc[name]
        assert row["calls"] == event.count
        assert row["time_us"] == pytest.approx(event.self_cpu_time_total, abs=0.05)
        assert row["time_us_total"] == pytest.approx(event.cpu_time_total, abs=0.05)
        share = event.cpu_time_total / sum(e.self_cpu_time_total for e in theirs.values())
        assert row["time_total_share"] == pytest.approx(share, abs=0.001)
        assert row["time_us_per_call"] == pytest.approx(event.cpu_time, abs=0.05)


def test_the_share_of_the_backward_pass_is_that_of_torchs_events_within_it():
    model, x = Toy(), torch.tensor(X)
    model(x).sum().backward()
    with marks.marked(model), marks.recorded_events() as recorded, marks.mark(marks.RUN):
        with marks.phase("loss"):
            loss = model(x).sum()
        with marks.phase("backward"):
            loss.backward()
    calls = Calls("torch")
    calls.add(marks.runs(recorded)[0])
    far = [1e9] * 5  # a wall that no time has to be corrected to
    measured = Measured("torch", "cpu", [X], far, [1e9], Overhead(0.0, 0.0))
    table = operation_table(profile_of(calls, measured))
    events = recorded.function_events
    backward = next(e for e in events if e.name == "tracer:phase:backward").time_range
    own = [e for e in events if not e.name.startswith("tracer:")]
    inside = [e for e in own if backward.start <= e.time_range.start <= backward.end]
    times = [sum(e.self_cpu_time_total for e in some) for some in (inside, own)]
    assert backward_share(table) == pytest.approx(times[0] / times[1], abs=1e-3)
    assert backward_share(table[~table["node"].str.contains("backward")]) is None


def test_the_memory_of_an_operator_is_at_least_its_output():
    operators = {o.node: o for o in executor.profile(Toy(), [X], FEW, silent).operations}
    assert operators["stem/conv2d"].peak_bytes >= 2 * 4 * 6 * 6 * 4
    assert operators["relu"].peak_bytes == 2 * 4 * 6 * 6 * 4
    assert operators["flatten"].peak_bytes == 0  # a view
    assert str(operators["fc/linear"].inputs[0]) == "float32[2,144]"


def state(model):
    values = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return values, gradients, [m.training for m in model.modules()]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("optimizer", [None, "sgd", "adam"])
def test_the_model_is_left_as_it_was(training, optimizer):
    model = Toy().train(training)
    model(torch.tensor(X)).sum().backward()
    model.block[0].weight.grad = None
    model.drop.train(not training)
    values, gradients, modes = state(model)
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    executor.profile(model, [X], dataclasses.replace(STEP, optimizer=optimizer), silent)
    again, gradients_again, modes_again = state(model)
    assert all(torch.equal(value, again[name]) for name, value in values.items())
    assert modes == modes_again
    for before, after in zip(gradients, gradients_again, strict=True):
        assert (before is None and after is None) or torch.equal(before, after)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class Failing(Toy):
    def forward(self, x):
        self.block(self.stem(x))
        raise ValueError("oops")


def test_a_model_that_raises_is_told_and_left_as_it_was():
    model = Failing().eval()
    with pytest.raises(InputError, match=r"Failing does not run on float32\[2,2,6,6\]: oops"):
        executor.profile(model, [X], FEW, silent)
    assert not any(m._forward_hooks or m._forward_pre_hooks or m.training for m in model.modules())


def test_a_second_profile_starts_from_nothing():
    model = Toy()
    first, second = (executor.profile(model, [X], FEW, silent) for _ in range(2))
    assert [k.calls for k in second.run.kernels] == [1.0] * len(first.run.kernels)
    assert first.operations == second.operations


def test_a_path_taken_in_some_runs_alone_is_called_in_some():
    class Now(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.run = 0
            self.fc = torch.nn.Linear(3, 3)

        def forward(self, x):
            self.run += 1
            return self.fc(x) if self.run % 2 else x.tanh()

    profiled = executor.profile(
        Now(), [np.ones((1, 3), np.float32)], dataclasses.replace(FEW, runs=40), silent
    )
    calls = {k.node: k.calls for k in profiled.run.kernels if not k.scope}
    assert set(calls) == {"fc/linear", "tanh"}
    assert sum(calls.values()) == pytest.approx(1)
    assert 0 < calls["tanh"] < 1


def test_an_optimizer_has_a_row_of_its_own():
    profiled = executor.profile(
        Toy(), [X], dataclasses.replace(STEP, optimizer="sgd", loss="cross-entropy"), silent
    )
    assert "optimizer/SGD.step" in [o.node for o in profiled.operations]
    assert "loss/cross_entropy_loss (backward)" in [o.node for o in profiled.operations]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Positions, STEP, "no output of the model has a gradient"),
        (Flat, dataclasses.replace(STEP, loss="cross-entropy"), "cross-entropy needs an output"),
    ],
)
def test_a_loss_that_does_not_suit_is_refused(model, options, message):
    with pytest.raises(UsageError, match=message):
        executor.profile(model(), [np.ones((2, 5), np.float32)], options, silent)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_device_that_is_not_there_is_a_clear_message():
    with pytest.raises(UsageError, match="torch sees no CUDA device"):
        executor.profile(Toy(), [X], dataclasses.replace(FEW, device="cuda"), silent)
