"""A small quantised network and data for it, in files."""

from __future__ import annotations

import numpy as np
import onnx

from tests import graphs
from tests.tracer.whatif.test_evaluation import QUANTISED


def model(path, seed=3):
    random = np.random.default_rng(seed)
    weights = {"q1": (3, 2, 3, 3), "q2": (3, 3, 3, 3), "q3": (10, 108)}
    stored = {n: random.integers(-40, 41, shape).astype(np.int8) for n, shape in weights.items()}
    stored |= {"s": np.float32(0.05), "t": np.float32(1.5), "z": np.int8(0)}
    onnx.save(graphs.parse(QUANTISED, **stored), path)
    return path


def data(path, samples=12, labels=True, seed=7):
    random = np.random.default_rng(seed)
    x = random.normal(0, 1, (samples, 2, 6, 6)).astype(np.float32)
    label_arrays = {"labels": random.integers(0, 10, samples)} if labels else {}
    np.savez(path, x=x, **label_arrays)
    return path
