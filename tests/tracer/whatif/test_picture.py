"""The picture of a what-if of a network of many nodes, whose names are long and alike."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.whatif.views import MOST_NODES, figure
from tracer.api.whatif import what_if
from tracer.whatif.options import WhatIfOptions

text = pytest.importorskip("matplotlib.text")

NODES, SIZE = 64, 4
NAME = "/encoder/layers.{}/attention/self/output_projection/{}"


def chain() -> onnx.ModelProto:
    """Products of quantised operands, one after another."""
    random = np.random.default_rng(0)
    stored = {"s": np.float32(0.05), "z": np.int8(0), "t": np.float32(0.01)}
    nodes = []
    for place in range(NODES):
        stored[f"w{place}"] = random.integers(-99, 100, (SIZE, SIZE)).astype(np.int8)
        for op_type, inputs, output in (
            ("QuantizeLinear", [f"x{place}", "s", "z"], f"q{place}"),
            ("DequantizeLinear", [f"q{place}", "s", "z"], f"a{place}"),
            ("DequantizeLinear", [f"w{place}", "t"], f"b{place}"),
            ("MatMul", [f"a{place}", f"b{place}"], f"x{place + 1}"),
        ):
            name = NAME.format(place, output if op_type != "MatMul" else op_type)
            nodes.append(helper.make_node(op_type, inputs, [output], name))
    ends = [helper.make_tensor_value_info(f"x{end}", 1, ["N", SIZE]) for end in (0, NODES)]
    tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in stored.items()]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], tensors)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def test_the_nodes_that_need_the_most_bits_have_names_that_can_be_read(tmp_path):
    onnx.save(chain(), tmp_path / "chain.onnx")
    x = np.random.default_rng(1).normal(0, 2, (4, SIZE)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x0=x)
    options = WhatIfOptions(limit=4, search=False, metric="noise")
    result = what_if(tmp_path / "chain.onnx", [12, 20], str(tmp_path / "x.npz"), options)
    assert len(result.variants[0].answer.sums) == NODES
    chart = figure(result, ViewOptions())
    chart.draw_without_rendering()
    panels = [axes for axes in chart.axes if " bits observed" in axes.get_title("left")]
    titles = [axes.get_title("left") for axes in panels]
    assert len(titles) == MOST_NODES == len(set(titles))
    assert all(title.partition(":")[0].endswith("MatMul") for title in titles)
    boxes = [title_of(axes).get_window_extent() for axes in panels]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert max(box.x1 for box in boxes) <= chart.bbox.x1
    assert min(title_of(axes).get_fontsize() for axes in panels) >= 8


def title_of(axes):
    """The text above the left end of a panel."""
    (title,) = (
        each for each in axes.findobj(text.Text) if each.get_text() == axes.get_title("left")
    )
    return title
