"""Whatever shapes and attributes a file claims, the counter answers; it never fails."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tests.analyzers.cost.graphs import Graph
from tests.examples import examples
from tracer.analyzers.cost import COLUMNS, cost, count
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.errors import UsageError
from tracer.graph import shape_inference
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import TensorType

dimension = st.one_of(st.integers(-1, 5), st.sampled_from([2**40, None, "N"]))
shape = st.one_of(st.none(), st.lists(dimension, max_size=5).map(tuple))
tensor = st.builds(TensorType, st.sampled_from(["float32", "int4", "string", "undefined"]), shape)
ATTRIBUTES = (
    *("axis", "group", "num_heads", "kv_num_heads", "q_num_heads", "num_groups", "p", "size"),
    *("block_size", "bits", "K", "N", "sampling_ratio", "hidden_size", "num_scan_inputs"),
)


@st.composite
def operations(draw):
    domain, op_type = draw(st.sampled_from(count.operators()))
    inputs = draw(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=8))
    numbers = st.dictionaries(st.sampled_from(ATTRIBUTES), st.integers(-3, 9), max_size=4)
    attributes = draw(numbers) | {
        "kernel_shape": draw(st.lists(st.integers(-1, 4), min_size=1, max_size=3))
    }
    return helper.make_node(op_type, inputs, ["y"], "node", domain=domain, **attributes)


@given(operations(), st.fixed_dictionaries(dict.fromkeys("abcy", tensor)))
@examples(200)
def test_no_shape_and_no_attribute_makes_the_counter_fail(node, types):
    graph = Graph()
    graph.nodes.append(node)
    counted = cost(TypedModel(graph.model(), TensorTypes({"": types}, {})))
    row = counted.table.iloc[0]
    assert bool(counted.unknown) == bool(row[["macs", "adds", "muls", "flops"]].isna().all())
    assert not (row[list(COLUMNS)].dropna() < 0).any()


def test_an_unknown_convention_is_refused_with_those_there_are():
    graph = Graph(x=(1,))
    graph.op("Relu", "x")
    model = graph.model()
    with pytest.raises(UsageError, match=r"'fancy'.*plain, channelwise"):
        cost(TypedModel(model, shape_inference.infer(model, {})), convention="fancy")
