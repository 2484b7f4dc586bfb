"""What several tests of the model families share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Outputs = Callable[[Any, np.ndarray], np.ndarray]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test is skipped where the framework in its parameters or its `needs` is not installed."""
    callspec = getattr(item, "callspec", None)
    needed = {callspec.params.get("framework")} if callspec else set()
    needed |= {name for marker in item.iter_markers("needs") for name in marker.args}
    for name in needed - {None}:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.fixture
def tiny_data(tmp_path: Path) -> Path:
    """Forty grey images of 8×8 pixels in three classes that differ in where they are bright."""
    rng = np.random.default_rng(3)
    y = np.arange(40) % 3
    x = rng.integers(0, 60, (40, 8, 8), np.uint8)
    x[np.arange(40), 2 * y] += 180
    path = tmp_path / "tiny.npz"
    np.savez(path, x=x, y=y)
    return path


@pytest.fixture
def framework_outputs() -> Iterator[Outputs]:
    """What a model of either framework computes in inference."""

    def outputs(model: Any, x: np.ndarray) -> np.ndarray:
        if hasattr(model, "state_dict"):
            import torch

            with torch.no_grad():
                return model.eval()(torch.from_numpy(x)).numpy()
        import chainer

        with chainer.using_config("train", False), chainer.no_backprop_mode():
            return model(x).array

    yield outputs
