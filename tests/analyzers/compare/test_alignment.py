"""Which rows are the same layer: rules on small tables, whole networks, and nothing ever lost."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.analyzers.compare.tables import nodes
from tracer.analyzers.compare import alignment
from tracer.analyzers.compare.alignment import (
    LayerRow,
    align,
    canonical,
    is_convolution,
    layer_rows,
)

MODELS = Path(__file__).parents[3] / "models"
RESNET, LENET = MODELS / "resnet_cifar", MODELS / "lenet"


def rows(*texts, module=None):
    """Rows of `op` or `module:op`, all with outputs of one shape."""
    table = []
    for place, text in enumerate(texts):
        name, _, op = text.rpartition(":")
        table.append(
            LayerRow(f"{place}", op, name or module, "", "[N,8]", f"k{id(texts)}{place}", False)
        )
    return table


def layers(*sides):
    """What is aligned, as the operators of each side."""
    return [
        tuple("+".join(sides[s][p].op for p in places) for s, places in enumerate(layer.rows))
        for layer in align(sides)
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Conv", "FusedConv", "aten::conv2d", "Convolution2DFunction", "conv2d",
          "mkldnn_convolution", "aten::_convolution", "QLinearConv"], "conv"),
        (["Gemm", "MatMul", "addmm", "aten::linear", "LinearFunction", "aten::mm"], "matmul"),
        (["BatchNormalization", "FixedBatchNormalization", "aten::batch_norm",
          "native_batch_norm"], "batchnormalization"),
        (["Relu", "ReLU", "aten::relu_", "relu"], "relu"),
        (["MaxPool", "MaxPoolingND", "MaxPooling2D", "aten::max_pool2d",
          "max_pool2d_with_indices"], "maxpool"),
        (["Add", "aten::add_", "add"], "add"),
        (["conv2d (backward)", "Convolution2DFunction (backward)"], "conv (backward)"),
    ],
)  # fmt: skip
def test_an_operator_has_one_name_whatever_the_framework(names, expected):
    assert {canonical(name) for name in names} == {expected}


def test_a_convolution_is_known_alone_fused_and_backward():
    assert is_convolution("Conv+BatchNormalization+Relu")
    assert is_convolution("conv2d (backward)")
    assert not is_convolution("Relu+Add")


def test_the_same_graph_is_aligned_row_by_row():
    graph = rows("a:conv", "a:relu", "b:conv", "b:relu")
    assert layers(graph, graph) == [("conv", "conv"), ("relu", "relu")] * 2


def test_a_folded_batch_norm_belongs_to_its_convolution():
    plain = rows("c1:conv", "b1:batchnormalization", "relu", "c2:conv", "b2:batchnormalization")
    folded = rows("c1:conv", "relu", "c2:conv")
    expected = [("conv+batchnormalization", "conv"), ("relu", "relu"),
                ("conv+batchnormalization", "conv")]  # fmt: skip
    assert layers(plain, folded) == expected
    assert layers(folded, plain) == [(b, a) for a, b in expected]


def test_addmm_is_a_product_and_a_sum():
    assert layers(rows("matmul", "relu"), rows("matmul", "add", "relu")) == [
        ("matmul", "matmul+add"), ("relu", "relu"),
    ]  # fmt: skip


def test_a_relu_inside_a_fused_convolution_is_with_it():
    apart, fused = rows("conv", "relu", "conv"), rows("conv", "conv")
    assert layers(apart, fused) == [("conv+relu", "conv"), ("conv", "conv")]


def test_a_module_split_differently_is_one_layer():
    whole = rows("a:conv", "norm:layernormalization", "b:conv")
    parts = rows("a:conv", "norm:averagepool", "norm:sub", "norm:pow", "norm:sqrt", "b:conv")
    assert layers(whole, parts)[1] == ("layernormalization", "averagepool+sub+pow+sqrt")


def test_what_nothing_explains_is_alone_and_not_lost():
    assert layers(rows("a:conv", "a:erf"), rows("a:conv"))[1] == ("erf", "")


def test_rows_of_one_name_match_though_data_give_them_other_sizes():
    """Names tell that `b` is the same where it reads the same, and `c` where `b` is."""
    sizes = [("[N,8]", 4, 3), ("[N,8]", 6, 5)]
    sides = [
        [
            LayerRow("a", "greater", None, "[N,8]", read, "k0", False),
            LayerRow("b", "nonzero", None, read, f"[2,{many}]", "k1", False, (0,)),
            LayerRow("c", "transpose", None, f"[2,{many}]", f"[{many},2]", "k2", False, (1,)),
            LayerRow("d", "sqrt", None, f"[{few}]", f"[{few}]", "k3", False),
        ]
        for read, many, few in sizes
    ]
    aligned = [layer.rows for layer in align(sides)]
    assert aligned == [((0,), (0,)), ((1,), (1,)), ((2,), (2,)), ((3,), ()), ((), (3,))]


def test_a_backward_pass_is_not_taken_for_the_forward_one():
    forward = rows("a:conv", "a:relu")
    both = rows("a:conv", "a:relu", "a:relu (backward)", "a:conv (backward)")
    result = layers(forward, both)
    assert result[:2] == [("conv", "conv"), ("relu", "relu")]
    assert sorted(result[2:]) == [("", "conv (backward)"), ("", "relu (backward)")]


def test_the_edges_of_the_graph_are_believed_before_the_order_of_the_table():
    def row(name, op, before=()):
        return LayerRow(name, op, name, "", "[N,8]", name, False, before)

    plain = [row("c1", "conv"), row("c3", "conv"), row("b1", "batchnormalization", (0,)),
             row("b3", "batchnormalization", (1,))]  # fmt: skip
    folded = [row("c1", "conv"), row("c3", "conv")]
    aligned = align([plain, folded])
    assert [layer.rows for layer in aligned] == [((0, 2), (0,)), ((1, 3), (1,))]


def test_rows_of_one_kernel_are_never_divided():
    table = nodes(
        [{"op_type": "Conv", "kernels": "k"}, {"op_type": "Relu", "kernels": "k"}],
    )
    fused, apart = layer_rows(table), rows("conv", "relu")
    assert [layer.rows for layer in align([apart, fused])] == [((0, 1), (0, 1))]


def test_shapes_are_compared_without_the_batch_and_the_type():
    one = nodes([{"op_type": "Relu", "output_shapes": "float32[1,16,8,8]"}], batch=1)
    many = nodes([{"op_type": "Relu", "output_shapes": "int8[64,16,8,8]"}], batch=64)
    assert layer_rows(one)[0].outputs == layer_rows(many)[0].outputs == "[N,16,8,8]"


def test_thousands_of_rows_without_names_are_aligned_in_their_order():
    count = 1500
    one = rows(*["relu"] * count)
    other = [replace(row, node=f"renamed {row.node}") for row in rows(*["relu"] * count)]
    added = [*other[:700], *rows("renamed:conv"), *other[700:]]
    assert [layer.rows for layer in align([one, other])] == [((i,), (i,)) for i in range(count)]
    aligned = [layer.rows for layer in align([one, added])]
    assert aligned[:count] == [((i,), (i + (i >= 700),)) for i in range(count)]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_pairs_of_many_rows_rise_and_are_alike(left, right):
    pairs = list(alignment._rising(left, right))
    assert all(left[a] == right[b] for a, b in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    assert len(pairs) == len(left) or left != right


def table(path, **options):
    trace = tracer.profile(path, runs=2, warmup=0, threads=1, **options)
    return layer_rows(trace.nodes, trace.runs[0].kernels)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["lenet/lenet", "resnet_cifar/resnet20"])
def test_torch_and_chainer_twins_have_the_same_layers(name):
    twins = [table(MODELS / f"{name}{end}.onnx", optimization="none") for end in ("", "_chainer")]
    aligned = align(twins)
    assert all(all(layer.rows) for layer in aligned)
    for layer in aligned:
        first, second = ([twins[s][p] for p in layer.rows[s]] for s in (0, 1))
        assert [row.op for row in first] == [row.op for row in second]
        modules = [{row.module for row in side if row.op in ("conv", "matmul")}
                   for side in (first, second)]  # fmt: skip
        assert modules[0] == modules[1]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("path", [LENET / "lenet.onnx", RESNET / "resnet20.onnx"])
def test_a_graph_and_its_optimised_self_have_the_same_layers(path):
    sides = [table(path, optimization=level) for level in ("none", "all")]
    results = [layer for layer in align(sides) if layer.rows[0]]
    assert all(all(layer.rows) for layer in results)
    for layer in results:
        assert len({tuple(sides[s][p].node for p in layer.rows[s]) for s in (0, 1)}) == 1


def test_a_twin_with_its_batch_norms_folded_loses_none():
    plain = table(RESNET / "resnet20.onnx", optimization="none")
    folded = [row for row in table(RESNET / "resnet20_chainer.onnx", optimization="none")
              if row.op != "batchnormalization"]  # fmt: skip
    aligned = align([plain, [replace(row, before=()) for row in folded]])
    assert all(all(layer.rows) for layer in aligned)
    for layer in aligned:
        kinds = ("conv", "batchnormalization")
        linear = [plain[p] for p in layer.rows[0] if plain[p].op in kinds]
        assert [row.op for row in linear] in ([], ["conv", "batchnormalization"])
        # conv3 with bn3, not with the bn1 that stands before it in Chainer's order
        assert len({row.module.replace("conv", "").replace("bn", "") for row in linear}) <= 1


OPERATORS = ["conv", "relu", "batchnormalization", "matmul", "add", "erf", "reshape", "pad"]
ROW = st.builds(
    LayerRow,
    node=st.sampled_from("abcdef"),
    op=st.sampled_from(OPERATORS),
    module=st.sampled_from([None, "", "m", "m.n"]),
    inputs=st.sampled_from(["", "[N,8]"]),
    outputs=st.sampled_from(["", "[N,8]", "[N,4]"]),
    kernels=st.sampled_from([None, "k1", "k2", "k3", "k4"]),
    is_runtime=st.booleans(),
)


@given(st.lists(st.lists(ROW, max_size=9), min_size=2, max_size=4))
def test_every_row_of_every_side_is_in_exactly_one_layer(sides):
    aligned = align(sides)
    places = [(s, p) for layer in aligned for s, side in enumerate(layer.rows) for p in side]
    expected = [(s, p) for s, side in enumerate(sides) for p in range(len(side))]
    assert sorted(places) == expected


@given(st.lists(ROW, max_size=9))
def test_a_table_is_aligned_with_itself_completely(side):
    assert all(all(layer.rows) for layer in align([side, side]))
