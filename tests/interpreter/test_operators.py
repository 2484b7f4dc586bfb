"""Every operator of the standard, at every version, against what its schema says."""

import inspect

import onnx
import pytest
from onnx import helper

from tracer.graph.model import Node, Scope
from tracer.interpreter.fallback import has_body, reference_class
from tracer.interpreter.operators import signature, standard

SCHEMAS = [
    schema
    for schema in onnx.defs.get_all_schemas_with_history()
    if schema.domain == "" and not schema.deprecated
]
KNOWN_DIFFERENCES = {
    # operator, version, attribute: why our default is not the schema's
    ("BatchNormalization", 1, "consumed_inputs"): "a hint for in-place work, required in name",
    ("Clip", 6, "min"): "no bound is the same as the lowest number",
    ("Clip", 6, "max"): "no bound is the same as the largest number",
    ("Concat", 1, "axis"): "the default stands in the words of the schema",
    ("Constant", 1, "value"): "one function serves all versions",
    ("Constant", 9, "value"): "one function serves all versions",
    ("GRU", 1, "direction"): "the schema has a misspelling",
    ("LpPool", 1, "kernel_shape"): "required since version 2, and useless to leave out",
    ("RNN", 1, "activations"): "the same, but one for each direction",
    ("RNN", 7, "activations"): "the same, but one for each direction",
    ("RNN", 14, "activations"): "the same, but one for each direction",
    ("RNN", 22, "activations"): "the same, but one for each direction",
    ("SequenceEmpty", 11, "dtype"): "the default stands in the words of the schema",
    ("Split", 1, "axis"): "the default stands in the words of the schema",
}


def of(schema):
    return f"{schema.name}-{schema.since_version}"


def ours(schema):
    return standard().find(schema.domain, schema.name, schema.since_version)


@pytest.mark.parametrize("schema", SCHEMAS, ids=of)
def test_every_operator_of_the_standard_domain_can_be_computed(schema):
    proto = helper.make_node(schema.name, ["x"], ["y"], name="n")
    node = Node(
        "n",
        0,
        schema.name,
        "",
        proto,
        Scope(onnx.GraphProto()),
        tuple(proto.input),
        tuple(proto.output),
    )
    implemented = ours(schema) is not None or has_body(node, schema.since_version)
    assert implemented or reference_class(node, schema.since_version) is not None


@pytest.mark.parametrize("schema", [s for s in SCHEMAS if ours(s)], ids=of)
def test_functions_take_what_the_schema_has(schema):
    function = ours(schema).function
    takes = signature(function)
    assert set(schema.attributes) <= takes.attributes | set(takes.inputs)
    assert takes.required <= schema.min_input
    assert takes.variadic or schema.max_input <= len(takes.inputs)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in schema.attributes and parameter.kind is parameter.KEYWORD_ONLY:
            key = (schema.name, schema.since_version, parameter.name)
            assert _same(schema.attributes[parameter.name], parameter) != (key in KNOWN_DIFFERENCES)


def _same(attribute, parameter):
    """Whether the function's default is the one of the schema."""
    if attribute.required or parameter.default is parameter.empty:
        return attribute.required and parameter.default is parameter.empty
    default = None
    if attribute.default_value.type:
        default = helper.get_attribute_value(attribute.default_value)
    if isinstance(default, bytes):
        default = default.decode()
    if isinstance(default, float):
        return parameter.default == pytest.approx(default, rel=1e-6)
    own = parameter.default
    return (list(own) if isinstance(own, tuple) else own) == default
