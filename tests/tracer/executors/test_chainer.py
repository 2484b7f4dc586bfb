"""Chainer eager as an executor, against its own TimerHook and networks whose functions we know."""

import dataclasses
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest

from tracer.analyzers.table import backward_share
from tracer.analyzers.timing import operation_table
from tracer.errors import InputError, UsageError
from tracer.executors.settings import EagerSettings

if find_spec("chainer") is None:
    pytest.skip("Chainer is not installed", allow_module_level=True)

from tracer.exporters.chainer.compat import load

chainer = load()

from models.resnet_cifar.chainer_net import CifarResNet  # noqa: E402
from tests.tracer.executors import nets_chainer as nets  # noqa: E402
from tests.tracer.executors.nets_chainer import Toy  # noqa: E402
from tracer.api.export import export  # noqa: E402
from tracer.containment.activity import silent  # noqa: E402
from tracer.executors.chainer.executor import executor  # noqa: E402
from tracer.graph import loading  # noqa: E402

FEW = EagerSettings(runs=3, warmup=1, threads=1)
STEP = dataclasses.replace(FEW, backward=True)
X = np.random.default_rng(0).standard_normal((2, 2, 6, 6)).astype(np.float32)
IMAGE = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)

FORWARD = [
    ("stem/Convolution2D", "stem", "Convolution2D"),
    ("block/Convolution2D", "block", "Convolution2D"),
    ("block/Convolution2D#2", "block", "Convolution2D"),
    ("ReLU", "", "ReLU"),
    ("norm/BatchNormalization", "norm", "BatchNormalization"),
    ("Dropout", "", "Dropout"),
    ("fc/Reshape", "fc", "Reshape"),
    ("fc/Linear", "fc", "Linear"),
]


def rows(profiled):
    return [(o.node, o.module, o.op_type) for o in profiled.operations]


@pytest.fixture(scope="module")
def resnet():
    return executor.profile(CifarResNet(residual="downsample"), [IMAGE], FEW, silent)


def test_a_resnet_20_makes_the_66_calls_of_the_published_measurement(resnet):
    assert Counter(o.op_type for o in resnet.operations) == {
        "Convolution2D": 21,
        "FixedBatchNormalization": 21,  # as it is called when it is not trained
        "ReLU": 19,
        "Add": 2,
        "AveragePooling2D": 1,
        "Reshape": 1,
        "Linear": 1,
    }
    assert len(resnet.run.kernels) == 66
    assert resnet.run.samples.shape == (3, 66)
    assert (resnet.run.samples > 0).all()
    assert (resnet.run.samples.sum(axis=1) <= resnet.run.instrumented_us).all()


def test_a_forward_pass_in_training_mode_uses_the_statistics_of_the_batch():
    model = Toy()
    mean = model.norm.avg_mean.copy()
    profiled = executor.profile(model, [X], dataclasses.replace(FEW, train=True), silent)
    assert rows(profiled) == FORWARD  # not FixedBatchNormalization
    assert (model.norm.avg_mean == mean).all()
    assert chainer.config.train


def test_they_come_in_the_order_that_chainers_own_hook_sees(resnet):
    hook = chainer.function_hooks.TimerHook()
    with chainer.using_config("train", False), chainer.no_backprop_mode(), hook:
        CifarResNet(residual="downsample")(IMAGE)
    names = [name.removesuffix("Function") for name, _ in hook.call_history]
    assert [o.op_type for o in resnet.operations] == names


def test_a_training_step_makes_the_calls_that_chainers_own_hook_counts():
    hook = chainer.function_hooks.TimerHook()
    model = CifarResNet(depth=8)
    model.cleargrads()
    with hook:
        chainer.functions.sum(model(IMAGE)).backward()
    profiled = executor.profile(CifarResNet(depth=8), [IMAGE], STEP, silent)
    ours = Counter(kernel.op_type for kernel in profiled.run.kernels)
    theirs = Counter(name.removesuffix("Function") for name, _ in hook.call_history)
    assert ours == theirs


def test_the_backward_pass_has_the_calls_that_chainers_own_hook_counts_in_it():
    model, hooks = CifarResNet(depth=8), [chainer.function_hooks.TimerHook() for _ in range(2)]
    model.cleargrads()
    with hooks[0]:
        loss = chainer.functions.sum(model(IMAGE))
    with hooks[1]:
        loss.backward()
    forward, backward = (len(hook.call_history) for hook in hooks)
    profiled = executor.profile(CifarResNet(depth=8), [IMAGE], STEP, silent)
    calls = Counter(kernel.node for kernel in profiled.run.kernels)
    table = operation_table(profiled)
    counted = table.assign(time_us=table["node"].map(calls))  # a call lasts 1 µs
    assert backward_share(counted) == pytest.approx(backward / (forward + backward))


def test_links_are_named_as_the_exporter_names_them(resnet):
    from tracer.exporters.chainer import trace
    from tracer.graph.provenance import module_of

    model = CifarResNet(residual="downsample")
    with chainer.using_config("train", False):
        graph = trace.trace(model, [IMAGE], 11).proto.graph
    exported = {module_of(n) for n in graph.node if n.op_type in ("Conv", "BatchNormalization")}
    ours = {o.module for o in resnet.operations if "Conv" in o.op_type or "Batch" in o.op_type}
    assert ours == exported


def test_the_backward_pass_belongs_to_the_links_of_the_forward_one():
    table = rows(executor.profile(Toy(), [X], STEP, silent))
    assert [row for row in table if "(backward)" not in row[0] and row[1] is not None] == FORWARD
    backward = [row for row in table if row[0].endswith(" (backward)") and row[1] is not None]
    assert backward == [
        (f"{node} (backward)", module, f"{op} (backward)") for node, module, op in FORWARD[::-1]
    ]
    assert {row[0] for row in table if row[1] is None} == {"loss/Sum", "loss/Sum (backward)"}


CALLED = [nets.CalledPair, nets.InheritingPair, nets.PairOfBoth, nets.PairThatHandsOn]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("outer", [nets.Pairs, nets.CalledPairs])
@pytest.mark.parametrize("kind", CALLED)
def test_links_that_define_call_keep_their_modules(outer, kind):
    calls = [vars(each).get("__call__") for each in (outer, kind)]
    expected = rows(executor.profile(nets.Pairs(), [X], STEP, silent))
    assert {module for _, module, _ in expected} >= {"", "0", "1", "0.one", "1.two"}
    assert rows(executor.profile(outer(kind), [X], STEP, silent)) == expected
    assert calls == [vars(each).get("__call__") for each in (outer, kind)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("outer", [nets.Pairs, nets.CalledPairs])
@pytest.mark.parametrize("kind", CALLED)
def test_the_export_of_links_that_define_call_has_the_same_modules(outer, kind, tmp_path):
    modules = []
    for number, model in enumerate((nets.Pairs(), outer(kind))):
        path = tmp_path / f"{number}.onnx"
        export(model, path, input_shape=X.shape)
        modules.append([(node.op_type, node.module) for node in loading.load(path).nodes])
    assert len(modules[0]) == 11
    assert modules[0] == modules[1]


def test_the_class_of_a_model_that_raises_is_as_before():
    calls = []

    class Fails(nets.CalledPair):
        def __call__(self, x):
            calls.append(x)
            if len(calls) == 3:
                raise ValueError("no")
            return super().__call__(x)

    call = Fails.__call__
    with pytest.raises(ValueError, match="no"):
        executor.profile(Fails(), [X], FEW, silent)
    assert Fails.__call__ is call
    assert chainer._get_link_hooks() == {}


@pytest.mark.parametrize("settings", [FEW, STEP])
def test_every_run_begins_with_the_state_that_the_model_has(settings):
    model = nets.Recurrent()
    first = rows(executor.profile(model, [X], settings, silent))
    assert (model.rnn.h, model.rnn.c) == (None, None)
    counts = Counter(op for _, _, op in first)
    assert (counts["LSTM"], counts["Linear"]) == (2, 3)  # one is lateral
    model(X)
    state = model.rnn.h, model.rnn.c
    second = Counter(op for _, _, op in rows(executor.profile(model, [X], settings, silent)))
    assert (model.rnn.h, model.rnn.c) == state
    assert (second["LSTM"], second["Linear"]) == (2, 4)
    assert rows(executor.profile(nets.Recurrent(), [X[:1]], settings, silent)) == first


@pytest.mark.one_in(2)
@pytest.mark.parametrize("settings", [FEW, STEP])
def test_the_calls_of_sequences_are_those_that_chainers_own_hook_counts(settings):
    def forward(self, x):
        return chainer.functions.stack(self.rnn(None, None, list(x[:, 0]))[2])

    model = type("Sequences", (chainer.Chain,), {"forward": forward})()
    with model.init_scope():
        model.rnn = chainer.links.NStepLSTM(2, 6, 3, 0.0)
    hook = chainer.function_hooks.TimerHook()
    model.cleargrads()
    with hook, chainer.using_config("train", settings.training):
        outputs = model(X)
        if settings.backward:
            chainer.functions.sum(outputs).backward()
    ours = executor.profile(model, [X], settings, silent)
    theirs = Counter(name.removesuffix("Function") for name, _ in hook.call_history)
    assert Counter(kernel.op_type for kernel in ours.run.kernels) == theirs


def test_a_second_profile_starts_from_nothing():
    model = Toy()
    first, second = (executor.profile(model, [X], FEW, silent) for _ in range(2))
    assert [k.calls for k in second.run.kernels] == [1.0] * len(first.run.kernels)
    assert second.run.samples.shape == first.run.samples.shape
    assert first.operations == second.operations
    assert chainer.get_function_hooks() == {}


def test_a_hook_of_the_users_own_stays_and_is_not_confused():
    hook = chainer.function_hooks.TimerHook()
    with hook:
        profiled = executor.profile(Toy(), [X], FEW, silent)
        assert list(chainer.get_function_hooks()) == ["TimerHook"]
    assert len(profiled.operations) == 7  # no dropout where nothing is trained


@pytest.mark.parametrize("optimizer", [None, "sgd", "adam"])
def test_the_model_is_left_as_it_was(optimizer):
    model = Toy()
    chainer.functions.sum(model(X)).backward()
    model.block.W.cleargrad()
    before = {name: p.array.copy() for name, p in model.namedparams()}
    gradients = {name: p.grad for name, p in model.namedparams()}
    mean, count = model.norm.avg_mean.copy(), model.norm.N
    drawn = np.random.get_state()[1].copy()
    executor.profile(model, [X], dataclasses.replace(STEP, optimizer=optimizer), silent)
    for name, param in model.namedparams():
        assert np.array_equal(param.array, before[name])
        assert param.grad is gradients[name]
        assert param.update_rule is None
    assert np.array_equal(model.norm.avg_mean, mean)
    assert count == model.norm.N
    assert chainer.config.train
    assert np.array_equal(np.random.get_state()[1], drawn)


def test_an_optimizer_has_a_row_of_its_own():
    profiled = executor.profile(
        Toy(), [X], dataclasses.replace(STEP, optimizer="adam", loss="cross-entropy"), silent
    )
    assert profiled.operations[-1].node == "optimizer/Adam.update"
    assert "loss/SoftmaxCrossEntropy (backward)" in [o.node for o in profiled.operations]


class Detached(Toy):
    def forward(self, x):
        return super().forward(x).array


def test_bad_requests_are_clear():
    with pytest.raises(InputError, match=r"Toy does not run on float32\[2,3,6,6\]"):
        executor.profile(Toy(), [np.ones((2, 3, 6, 6), np.float32)], FEW, silent)
    with pytest.raises(UsageError, match="Chainer cannot use cuda"):
        executor.profile(Toy(), [X], dataclasses.replace(FEW, device="cuda"), silent)
    with pytest.raises(UsageError, match="no output of the model has a gradient"):
        executor.profile(Detached(), [X], STEP, silent)
