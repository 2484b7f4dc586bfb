"""MaxPool by the compiled kernel against onnxruntime, and NaN against numpy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import agree, normal, quick, single
from tracer.interpreter.interpreter import Interpreter

_PAIR = st.tuples(*[st.integers(1, 3)] * 2)


@quick
@given(_PAIR, _PAIR, _PAIR, st.tuples(*[st.integers(0, 1)] * 4), st.integers(0, 1))
def test_max_pool_of_large_images(kernel, strides, dilations, pads, ceil_mode):
    pads = [min(pad, k - 1) for pad, k in zip(pads, kernel * 2, strict=True)]
    feeds = {"x": normal(2, 9, 30, 29) - 3}  # below 0, as padding must not win
    model = single("MaxPool", feeds, opset=12, kernel_shape=kernel, strides=strides,
                   dilations=dilations, pads=pads, ceil_mode=ceil_mode)  # fmt: skip
    agree(model, feeds, rtol=0, atol=0)


def test_a_window_with_nan_is_nan():
    x = normal(3, 8, 40, 40)
    x[1, 2, 10, 11], x[0, 0] = np.nan, -np.inf
    result = Interpreter(single("MaxPool", {"x": x}, kernel_shape=[2, 2], strides=[2, 2])).run(
        None, {"x": x}
    )[0]
    np.testing.assert_array_equal(result, x.reshape(3, 8, 20, 2, 20, 2).max(axis=(3, 5)))
