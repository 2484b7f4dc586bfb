"""Traces that the tests of formats of other programs render: stored ones, which take no run."""

import pytest

import tracer

STORED = "tests/fixtures/traces/{}.trace"


@pytest.fixture(scope="session")
def profile():
    """LeNet in onnxruntime, batches of 1 and of 4, with times and work."""
    return tracer.load(STORED.format("profile"))


@pytest.fixture(scope="session")
def framework():
    """A network in PyTorch: operators inside operators, and no graph."""
    return tracer.load(STORED.format("framework"))


@pytest.fixture(scope="session")
def sums():
    """LeNet in 8 bits with accumulators of 18 bits."""
    return tracer.load(STORED.format("sums"))


@pytest.fixture(scope="session")
def count():
    """A model that was counted and not run."""
    return tracer.load(STORED.format("count"))
