"""Tables of 80, 100 and 120 columns: no line is too wide, no two rows look the same.

`python -m tests.analyzers.views.test_widths` writes the golden files.
"""

import io
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table as Grid

import tracer
from tracer.analyzers.fusions import FusedKernel, Fusions, NodeFate
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import show
from tracer.api.compare import SideSettings
from tracer.api.results import load_result
from tracer.records import environment
from tracer.records.transformed import (
    LayerError,
    Narrowed,
    NarrowedNode,
    OutputError,
    Plan,
    Quantized,
    Speedup,
    Trial,
    Tuned,
    WidthScores,
    WorstChannel,
)
from tracer.records.whatif import Judgement

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (80, 100, 120)
_PARTS = ("self_attn/q_proj", "self_attn/k_proj", "self_attn/o_proj", "mlp/up_proj")
NAMES = [f"/model/layers.{n}/{part}/MatMul" for n in range(125) for part in _PARTS]


def large():
    """A count of 2,000 nodes, as exporters of language models name them."""
    nodes, before = [], "x"
    for name in NAMES:
        for suffix in ("", "_scale", "_shift", "_clip"):
            after = f"{name}{suffix}:0"
            nodes.append(helper.make_node("Relu", [before], [after], name=f"{name}{suffix}"))
            before = after
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64]) for n in ("x", before)]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def timed(model):
    """A trace with times that follow from the work, so that each run of this is the same."""
    trace = tracer.count(model)
    work = trace.nodes["flops"].fillna(0).astype(float)
    time = pd.Series(0.05 + work / 1e5 + [i % 89 / 100 for i in range(len(work))], work.index)
    nodes = trace.nodes.assign(
        time_us=time, time_us_raw=time + 0.5, time_share=time / time.sum(),
        time_us_ci95_low=0.9 * time, time_us_ci95_high=1.1 * time,
    )  # fmt: skip
    machine = replace(trace.environment, cpu="CPU")  # a long name takes two lines
    return replace(trace, nodes=nodes, environment=machine)


TRACES = {
    "cnn": lambda: timed(ROOT / "models/resnet_cifar/resnet20.onnx"),
    "transformer": lambda: timed(ROOT / "models/transformer/transformer.onnx"),
    "large": lambda: timed(large()),
}


class Recorder(Console):
    """A console that keeps the grids that it prints."""

    def __init__(self, width):
        self.stream, self.grids = io.StringIO(), []
        super().__init__(file=self.stream, width=width, highlight=False, force_terminal=False)

    def print(self, *objects, **options):
        self.grids += [each for each in objects if isinstance(each, Grid)]
        super().print(*objects, **options)


def screen(result, width, **options):
    """What a terminal shows, whose lines fit and whose rows differ; without the machine."""
    console = Recorder(width)
    show(result, console, ViewOptions(**options))
    lines = console.stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert console.grids
    for grid in console.grids:
        names = [c._cells for i, c in enumerate(grid.columns) if not i or c.justify == "left"]
        labels = [tuple(map(str, cells)) for cells in zip(*names, strict=True)]
        assert len(set(labels)) == len(labels), labels
        assert not any("…" in cell and " #" in cell for cells in labels for cell in cells), labels
    return "\n".join([*(line.rstrip() for line in lines[:-1]), ""])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TRACES)
def test_tables_are_as_they_were(name, width):
    golden = GOLDEN / f"{name}-{width}.txt"
    assert screen(TRACES[name](), width) == golden.read_text()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("by", ["node", "op", "module"])
def test_all_rows_differ(by, width):
    screen(TRACES["transformer"](), width, by=by, top=0)


@pytest.mark.nightly
def test_two_thousand_rows_differ():
    text = screen(TRACES["large"](), 80, top=0)
    assert all(f"layers.{n}/" in text or f"…{n}/" in text for n in range(125))


def transformed():
    """A result of each transformation, for a network with long names."""
    names, info = NAMES[:12], tracer.count(large()).model
    judgement = Judgement("top1", "%", True, 1.0)
    layers = tuple(LayerError(n, "MatMul", n[1:], 30.0 + i, 1e-4 * i) for i, n in enumerate(names))
    settings = {"per_channel": True, "weight_type": "int8", "activation_type": "uint8",
                "format": "qdq", "method": "minmax", "calibrate": "digits", "test": "digits",
                "tile": None, "weight_bits": None, "guarantee": "any-input", "goal": "latency",
                "optimization": "all"}  # fmt: skip
    yield Quantized(info, settings, None, layers, (), None)
    nodes = tuple(NarrowedNode(n, "MatMul", n[1:], 16, 20, 16, 18, 15, "weights") for n in names)
    scores = (WidthScores(16, 97.5, 60.0),)
    yield Narrowed(info, settings, judgement, 98.0, 100, 16, scores, nodes, (), None)
    speed = Speedup(1.2, 1.1, 1.3)
    forms = [("optimization", level) for level in ("none", "basic", "extended")]
    trials = tuple(Trial(*form, "the kernels are many and short", "rounding", "kept", True, speed)
                   for form in forms)  # fmt: skip
    plan = Plan("m", "0", "latency", (("threads", "2"),), {}, "cpu", 2, "1")
    yield Tuned(info, settings, trials, plan, speed, None, None, 1e-7, (), ("a = 1",), ())
    kernels = tuple(
        FusedKernel(f"{n}_fused_MatMulScaleFusion", "FusedMatMul", "", 1.0, "group",
                    (n, f"{n}_scale"), "confirmed", "")
        for n in names
    )  # fmt: skip
    fates = [NodeFate(f"{n}_clip", "Relu", "", None, "removed", (), "it changes nothing")
             for n in names]  # fmt: skip
    observed = environment.observe()
    yield Fusions(info, observed, settings, 1, kernels, tuple(fates), ())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_other_results_differ_too(width):
    for result in transformed():
        screen(result, width)
    stored = str(ROOT / "tests/fixtures/traces/profile.trace")
    screen(tracer.compare([stored, stored], settings=SideSettings(batch=1)), width)
    screen(load_result(ROOT / "tests/fixtures/traces/whatif.trace"), width)


def test_outputs_with_long_names_take_a_line_each():
    quantised = next(transformed())
    worst = WorstChannel(1, 1234, 12.3, 0, 4096)
    outputs = tuple(OutputError(name, 23.4, worst) for name in NAMES[:3])
    lines = screen(replace(quantised, outputs=outputs), 80).splitlines()
    shown = [line.partition(": SQNR 23.4 dB, 12.3 dB in its worst channel ") for line in lines]
    named = {line for line, _, channel in shown if channel == "(1234 of axis 1)"}
    assert len(named) == 3
    assert all(any(f"attn/{part}" in name for name in named) for part in "qko")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, make in TRACES.items():
        for width in WIDTHS:
            (GOLDEN / f"{name}-{width}.txt").write_text(screen(make(), width))
