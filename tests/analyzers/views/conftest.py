"""Traces that the tests of all views render."""

import pytest

import tracer
from tests.graphs import parse, residual

HOSTILE = ["=1+1", "\x1b[31mred", "[bold]x[/bold]", "</script>", "a|b", "\u202ereversed", "x" * 300]


@pytest.fixture(scope="module")
def trace():
    proto = residual()
    for node, name in zip(proto.graph.node, HOSTILE, strict=False):
        node.name = name
    return tracer.profile(proto, runs=5, threads=1, optimization="none")


@pytest.fixture(scope="module")
def counted():
    return tracer.count(residual())


@pytest.fixture(scope="module")
def empty():
    """A model that hands its input on: no node, but runs that took time."""
    text = '<ir_version: 8, opset_import: ["": 16]> g (float[2] x) => (float[2] x) {}'
    return tracer.profile(parse(text), runs=5, threads=1)
