"""Whole networks in float accumulators against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import tracer
from tests.examples import at_night
from tracer.inputs.request import Samples

NETWORKS = ["lenet/lenet", "resnet_cifar/resnet20", "transformer/transformer"]


def outputs(network: str, **options: Any) -> tuple[np.ndarray, np.ndarray, tracer.Trace]:
    """The first outputs of 24 samples, those of onnxruntime, and the trace."""
    path = f"models/{network}.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ours, theirs = [], []

    def receive(feedset: Any, values: Any) -> None:
        ours.append(values[0])
        theirs.append(session.run(None, dict(feedset.feeds))[0])

    trace = tracer.interpret(path, inputs=Samples("digits", limit=24), batch=12, threads=2,
                             receive=receive, in_process=True, **options)  # fmt: skip
    return np.concatenate(ours), np.concatenate(theirs), trace


@pytest.mark.needs("sklearn")
@pytest.mark.parametrize("network", at_night(NETWORKS, but=[NETWORKS[0], NETWORKS[-1]]))
def test_float32_sums_classify_as_onnxruntime_does(network):
    ours, theirs, trace = outputs(network, accumulator="fp32")
    np.testing.assert_array_equal(ours.argmax(-1), theirs.argmax(-1))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())
    multiplying = trace.nodes[trace.nodes["op_type"].isin(["Conv", "Gemm", "MatMul"])]
    assert len(multiplying) == len(trace.runs[0].float_sums)
    assert (multiplying["accumulator"] == "fp32").all()
    # a product of K terms is off by some K roundings of 2^-24 at most, unless terms cancel
    assert (multiplying["rel_error_p50"] < 1e-5).all()


@pytest.mark.nightly
@pytest.mark.needs("sklearn")
def test_fewer_bits_are_further_from_float32():
    """The error of the output grows as formats lose bits of fraction: 23, 10, 7, 3."""
    errors = []
    for accumulator in ("fp32", "fp16", "bf16", "e5m3"):
        ours, theirs, trace = outputs("lenet/lenet", accumulator=accumulator)
        lost = trace.nodes.set_index("node").loc["node_linear", "swamped_share"]
        errors.append((float(np.abs(ours - theirs).mean()), float(lost)))
    assert errors == sorted(errors)
