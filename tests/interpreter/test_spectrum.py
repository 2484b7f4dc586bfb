"""STFT of any signal; onnxruntime and numpy's loop are the oracles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import agree, normal, quick, single
from tracer import Interpreter
from tracer.errors import ModelError


@quick
@given(
    st.integers(0, 3),
    st.integers(1, 17),
    st.integers(0, 20),
    st.integers(1, 9),
    st.sampled_from(["window", "length", "both"]),
    st.sampled_from([(), (1,), (2,)]),
    st.booleans(),
)
def test_stft(batch, length, more, step, given_by, parts, is_onesided):
    is_onesided &= parts != (2,)
    feeds = {"x": normal(batch, length + more, *parts), "step": np.array(step)}
    feeds["window"] = normal(length) if given_by != "length" else None
    feeds["length"] = np.array(length) if given_by != "window" else None
    model = single("STFT", feeds, opset=17, onesided=int(is_onesided))
    agree(model, {k: v for k, v in feeds.items() if v is not None}, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("samples", "window", "step"), [(8, 9, 2), (8, 4, 0), (8, 4, -1), (8, 0, 1)]
)
def test_frames_that_do_not_fit_are_named(samples, window, step):
    feeds = {"x": normal(1, samples, 1), "step": np.array(step), "window": normal(window)}
    with pytest.raises(ModelError, match=f"frames of {window} samples every {step} do not fit"):
        Interpreter(single("STFT", feeds, opset=17)).run(None, feeds)
