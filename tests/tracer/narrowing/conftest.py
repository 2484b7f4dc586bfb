"""A small quantised network, and its data, for tests of narrowing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.analyzers.toolchains import networks


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `net.onnx`, two products that need 18 bits, and of its `data.npz`."""
    path = tmp_path_factory.mktemp("perceptron")
    net = networks.perceptron((0.5, 0.1, 0.3, 0.0625))
    onnx.save(net.model("qdq", ("N", 12), "second"), path / "net.onnx")
    x = np.random.default_rng(1).uniform(0, 120, (40, 12)).astype(np.float32)
    np.savez(path / "data.npz", x=x)
    return path
