"""Models in their framework, from the name to the table, as a user meets it."""

import json
import re
import sys
from importlib.util import find_spec

import pytest

import tracer
import tracer.cli
from tests.examples import at_night
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render
from tracer.api.profile import profile_framework
from tracer.errors import UsageError
from tracer.records.columns import COLUMNS

TORCH = "tests/tracer/executors/nets_torch.py"
CHAINER = "tests/tracer/executors/nets_chainer.py"
FAST = ("--runs", "3", "--warmup", "1", "--threads", "1")

needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
needs_chainer = pytest.mark.skipif(not find_spec("chainer"), reason="Chainer is not installed")


def run(capfd, *args):
    """Exit code, stdout and stderr of a command."""
    code = tracer.cli.main([str(arg) for arg in args])
    out = capfd.readouterr()
    return code, out.out, out.err


@pytest.fixture(scope="module")
def trace():
    pytest.importorskip("torch")
    return tracer.profile_framework(
        f"{TORCH}:Toy", batch=[1, 4], runs=4, warmup=1, threads=1, backward=True
    )


def test_the_table_is_the_one_that_other_programs_rely_on(trace):
    nodes = trace.nodes
    assert tuple(nodes.columns) == COLUMNS
    assert set(nodes["executor"]) == {"torch"}
    assert nodes["batch"].unique().tolist() == [1, 4]
    first = nodes[nodes["batch"] == 1]
    assert first["node"].is_unique
    shares = first["time_share"].dropna()  # on a busy machine, a time may be a bound without one
    times = first["time_us"]
    assert shares.tolist() == pytest.approx((times[shares.index] / times.sum()).tolist())
    assert (nodes["time_us"] >= 0).all()
    assert (nodes["calls"] == 1).all()
    assert nodes["macs"].isna().all()
    assert trace.model.params == 2 * 4 * 9 + 4 + 4 * 4 + 4 + 8 + 144 * 3 + 3
    row = first.set_index("node").loc["block.0/conv2d#2"]
    assert (row["module"], row["op_type"], row["domain"]) == ("block.0", "conv2d", "aten")
    assert row["input_shapes"].startswith("float32[1,4,6,6], float32[4,4,1,1]")
    assert any("recording adds" in note and "(medians)" in note for note in trace.notes)


def test_forward_and_backward_fold_into_the_same_module(trace):
    table = render(trace, "json", ViewOptions(by="module"))
    rows = {row["module"]: row for row in json.loads(table)["runs"][0]["nodes"]}
    assert rows["fc"]["nodes"] == 2
    assert rows["block.0"]["nodes"] == 4
    assert rows["(no module)"]["nodes"] == 3  # the loss, its backward pass, and where that begins


@pytest.mark.nightly
@pytest.mark.parametrize("by", at_night(["node", "op", "module", "kernel"], but=["module"]))
def test_every_view_shows_it_again_after_the_file(trace, by, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "r.trace").write_bytes(render(trace, "trace"))
    again = tracer.load(tmp_path / "r.trace")
    for extension in ("json", "csv", "md", "svg"):
        shown = render(again, extension, ViewOptions(by=by))
        assert shown == render(trace, extension, ViewOptions(by=by))
        assert len(shown) > 300


@needs_torch
def test_the_command_prints_the_table_of_the_framework(capfd):
    code, out, err = run(capfd, "profile", f"{TORCH}:Toy", *FAST, "--backward", "--by", "module")
    assert (code, err) == (0, "")
    assert "torch 2" in out
    assert "block.0" in out
    assert "18 operators forward" not in out
    assert "11 operators forward, 539 parameters" in out
    assert re.search(r"^backward [\d.]+ [µm]s, \d+\.\d% of the nodes, \d+\.\d% of wall$", out, re.M)


def test_the_share_of_the_backward_pass_is_in_the_document(trace):
    for run in json.loads(render(trace, "json"))["runs"]:
        times = [
            [row["time_us"] for row in run["nodes"] if ("backward" in row["node"]) is of_backward]
            for of_backward in (True, False)
        ]
        backward, forward = map(sum, times)
        assert run["backward_share"] == pytest.approx(backward / (forward + backward))


@needs_torch
def test_a_pass_forward_alone_has_no_share_of_a_backward_pass(capfd):
    _, out, _ = run(capfd, "profile", f"{TORCH}:Toy", *FAST, "--json")
    assert json.loads(out)["runs"][0]["backward_share"] is None


@needs_torch
def test_calls_of_kernels_are_shown_in_a_narrow_terminal(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capfd, "profile", f"{TORCH}:Toy", *FAST, "--by", "kernel", "--top", "0")
    rows = {cells[0]: cells[1] for cells in map(str.split, out.splitlines()) if len(cells) > 2}
    assert (rows["op"], rows["aten::convolution"], rows["aten::clamp_min"]) == ("calls", "3", "3")


@needs_torch
def test_kernels_are_shown_with_own_and_total_time(capfd):
    code, out, _ = run(capfd, "profile", f"{TORCH}:Toy", *FAST, "--by", "kernel", "--csv")
    assert code == 0
    header, *rows = out.splitlines()
    assert {"time_us", "time_us_total", "time_us_per_call", "calls"} <= set(header.split(","))
    assert any("aten::convolution" in row for row in rows)


@needs_chainer
def test_a_chain_that_defines_call_is_counted_whole(capfd):
    code, out, err = run(
        capfd, "profile", f"{CHAINER}:PairOfBoth", "--input-shape", "1,2,6,6", *FAST, "--by",
        "module",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "5 operators forward" in out
    assert "(no module)" not in out


@needs_chainer
def test_chainer_is_profiled_by_the_same_command(capfd):
    code, out, err = run(
        capfd, "profile", f"{CHAINER}:Toy", "--framework", "chainer", *FAST, "--batch", "1,2",
        "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    runs = json.loads(out)["runs"]
    assert [(r["executor"], r["batch"], len(r["nodes"])) for r in runs] == [
        ("chainer", 1, 7),
        ("chainer", 2, 7),
    ]
    assert runs[1]["inputs"] == {"input0": "float32[2,2,6,6]"}


@needs_torch
def test_arguments_and_weights_are_those_of_export(capfd, tmp_path):
    import torch

    from tests.tracer.executors.nets_torch import Toy

    torch.save(Toy(classes=5).state_dict(), tmp_path / "w.pt")
    five = ("--arg", "classes=5", "--weights", tmp_path / "w.pt")
    assert run(capfd, "profile", f"{TORCH}:Toy", *FAST, *five)[0] == 0
    code, _, err = run(capfd, "profile", f"{TORCH}:Toy", *FAST, "--weights", tmp_path / "w.pt")
    assert code == 3
    assert "fc.weight" in err


BAD = {
    "no such name": ([f"{TORCH}:Nothing"], 3, "has no 'Nothing'"),
    "no such file": (["nowhere.py:Net"], 3, "nowhere.py: no such file"),
    "no name": ([TORCH], 2, "names no model"),
    "no shape": ([f"{TORCH}:Flat"], 2, "--input-shape"),
    "a wrong shape": ([f"{TORCH}:Toy", "--input-shape", "1,3,6,6"], 3, "Toy does not run on"),
    "a letter in a shape": ([f"{TORCH}:Flat", "--input-shape", "1,3,x"], 2, "1,3,x is not a shape"),
    "a size of 0": ([f"{TORCH}:Flat", "--input-shape", "0,5"], 2, "[0, 5] is not a shape"),
    "a type that is none": (
        [f"{TORCH}:Flat", "--input-shape", "2,5", "--input-dtype", "float33"],
        2, "no element type 'float33'",
    ),
    "a backward pass that fails": (
        [f"{TORCH}:Overwriting", "--backward"], 3, "Overwriting does not run on float32",
    ),
    "a model that exits": ([f"{TORCH}:Exiting"], 3, "Exiting ends the program"),
    "a loss that does not suit": (
        [f"{TORCH}:Flat", "--input-shape", "2,5", "--backward", "--loss", "cross-entropy"],
        2, "cross-entropy needs an output [N, classes, …]",
    ),
    "no gradient": ([f"{TORCH}:Positions", "--backward"], 2, "no output of the model has"),
    "a loss without a backward pass": ([f"{TORCH}:Toy", "--loss", "sum"], 2, "training step"),
    "another framework": ([f"{TORCH}:Toy", "--framework", "chainer"], 2, "not a chainer model"),
    "an option of a graph": ([f"{TORCH}:Toy", "--provider", "cpu"], 2, "--provider: not for"),
    "an option of a framework": (["m.onnx", "--backward"], 2, "--backward: not for m.onnx"),
    "a batch without memory": ([f"{TORCH}:Toy", "--batch", "2147483647"], 4, "memory"),
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize(("args", "expected", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_message(args, expected, message, capfd):
    code, out, err = run(capfd, "profile", *args, "--runs", "1")
    assert (code, out) == (expected, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("framework", "file", "install"),
    [
        ("torch", TORCH, "pip install 'tracer-onnx[torch]'"),
        ("chainer", CHAINER, "pip install --no-build-isolation chainer==7.8.1"),
    ],
)
def test_a_framework_that_is_not_installed_is_named_with_what_to_install(
    framework, file, install, capfd, monkeypatch
):
    monkeypatch.setitem(sys.modules, framework, None)
    for name in [n for n in sys.modules if "nets_" in n]:
        monkeypatch.delitem(sys.modules, name)
    code, _, err = run(capfd, "profile", f"{file}:Toy", *FAST)
    assert code == 2
    assert install in err
    assert err.count("\n") == 1


@needs_torch
def test_what_torch_compiles_is_one_more_run_or_a_note(monkeypatch):
    import torch

    def aot(model, **kwargs):
        return lambda *args: model(*args)

    monkeypatch.setattr(torch, "compile", aot)
    trace = profile_framework(f"{TORCH}:Toy", runs=2, warmup=0, compiled=True)
    assert [r.executor for r in trace.runs] == ["torch", "torch-compile"]
    rows = trace.nodes[trace.nodes["executor"] == "torch-compile"]
    assert "conv2d" in set(rows["op_type"])
    assert rows["module"].isna().all()

    def broken(model, **kwargs):
        def raising(*args):
            raise RuntimeError("no C++ compiler")

        return raising

    monkeypatch.setattr(torch, "compile", broken)
    trace = profile_framework(f"{TORCH}:Toy", runs=2, warmup=0, compiled=True)
    assert [r.executor for r in trace.runs] == ["torch"]
    assert any("torch.compile does not work here: " in note for note in trace.notes)
    assert any("no C++ compiler" in note for note in trace.notes)


@needs_torch
@pytest.mark.parametrize("is_here", [True, False])
def test_a_live_model_is_profiled_and_left_as_it_was(is_here):
    import torch

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 4)
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trace = tracer.profile_framework(
        model, input_shape=(1, 3, 8, 8), runs=3, optimizer="sgd", backward=True, in_process=is_here
    )
    assert trace.settings["target"] == trace.model.name == "Sequential"
    assert {"0/conv2d", "2/linear"} <= {*trace.nodes["node"]}
    assert model.training and all((before[n] == v).all() for n, v in model.state_dict().items())
    with pytest.raises(UsageError, match="args and weights apply to a model that is named"):
        tracer.profile_framework(model, args={"depth": 3})
    with pytest.raises(UsageError, match=r"of type builtins.int is not a model of"):
        tracer.profile_framework(3)


@needs_chainer
def test_chainer_is_not_compiled():
    with pytest.raises(UsageError, match=r"torch\.compile does not take"):
        profile_framework(f"{CHAINER}:Toy", compiled=True)


@needs_torch
def test_the_models_say_the_shapes_that_they_are_trained_on():
    from models import families

    for family in families.names():
        for framework in families.frameworks(family):
            trained_on = families.recipe(family).input_shape
            if framework == "torch" and len(trained_on) > 1:  # text has windows of any length
                model = families.build(family, framework, {})
                assert model.input_shape == trained_on


@needs_torch
@pytest.mark.parametrize("first_calls", [3, 9, 13])
def test_what_only_first_calls_do_is_no_row(first_calls):
    """As lazy modules and compiled ones do: a row without a call in a measured run has no time."""
    from torch import nn, relu

    class Lazy(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(relu(x) if self.calls <= first_calls else x)

    trace = profile_framework(Lazy(4, 4), input_shape=(1, 4), runs=5, in_process=True)
    assert (trace.nodes["calls"] > 0).all()
    assert "linear" in trace.nodes["op_type"].tolist()
