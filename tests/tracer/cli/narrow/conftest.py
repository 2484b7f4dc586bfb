"""A model of integer sums, and its inputs."""

import numpy as np
import onnx
import pytest

from tests.graphs import integers


@pytest.fixture
def model(tmp_path):
    onnx.save(integers(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def feeds():
    rng = np.random.default_rng(3)
    draw = lambda *shape: rng.integers(0, 256, shape, np.uint8)  # noqa: E731
    return {"x": draw(9, 2, 4, 4), "a": draw(9, 12)}


@pytest.fixture
def file(tmp_path, feeds):
    np.savez(tmp_path / "f.npz", **feeds)
    return tmp_path / "f.npz"
