"""Convolutions and poolings of random shapes and attributes; onnxruntime is the oracle."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from tests.interpreter.models import agree, normal, onnxruntime, quick, single
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import as_policy
from tracer.errors import ModelError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter


@st.composite
def windows(draw, rank):
    """Kernel, strides, dilations and pads over axes that are large enough for them."""
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    strides = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    dilations = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    pads = [draw(st.integers(0, k - 1)) for k in kernel] * 2
    size = [
        draw(st.integers((k - 1) * d + 1, (k - 1) * d + 9))
        for k, d in zip(kernel, dilations, strict=True)
    ]
    return size, {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
    }


@quick
@given(
    st.integers(1, 3).flatmap(windows),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
def test_convolution(window, batch, group, channels, maps, bias):
    size, attributes = window
    feeds = {
        "x": normal(batch, group * channels, *size),
        "w": normal(group * maps, channels, *attributes["kernel_shape"], seed=1),
        "b": normal(group * maps, seed=2) if bias else None,
    }
    agree(single("Conv", feeds, group=group, **attributes), feeds)


@settings(quick, max_examples=25)
@given(
    windows(2),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([(1, 16, 24), (1, 13, 17), (4, 8, 8), (24, 1, 1), (12, 1, 2)]),
    st.sampled_from([28, 33, 47]),
)
def test_convolution_by_compiled_kernels(window, batch, shape, size):
    _, attributes = window
    group, channels, maps = shape
    feeds = {
        "x": normal(batch, group * channels, size, size + 3),
        "w": normal(group * maps, channels, *attributes["kernel_shape"], seed=1),
        "b": normal(group * maps, seed=2),
    }
    agree(single("Conv", feeds, group=group, **attributes), feeds, rtol=1e-3, atol=1e-4)


@quick
@given(windows(2), st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
def test_convolution_with_automatic_padding(window, auto_pad):
    size, attributes = window
    del attributes["pads"]
    attributes["dilations"] = [1, 1]
    feeds = {"x": normal(1, 2, *size), "w": normal(3, 2, *attributes["kernel_shape"], seed=1)}
    agree(single("Conv", feeds, auto_pad=auto_pad, **attributes), feeds)


@quick
@given(st.integers(1, 2).flatmap(windows), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3))
def test_transposed_convolution(window, group, channels, maps):
    size, attributes = window
    feeds = {
        "x": normal(2, group * channels, *size),
        "w": normal(group * channels, maps, *attributes["kernel_shape"], seed=1),
        "b": normal(group * maps, seed=2),
    }
    padding = [s - 1 for s in attributes["strides"]]
    model = single("ConvTranspose", feeds, group=group, output_padding=padding, **attributes)
    agree(model, feeds)


@quick
@given(
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
    st.sampled_from([None, (0, 3), (2, 0), (3, 3)]),
    st.sampled_from([None, 16]),
)
def test_an_output_of_nothing_is_refused_where_onnxruntime_refuses_it(pads, size, bits):
    asked = {"output_shape": size} if size else {"pads": pads}
    feeds = {"x": normal(1, 1, 3, 3), "w": normal(1, 1, 3, 3, seed=1)}
    model = single("ConvTranspose", feeds, **asked)
    try:
        (expected,) = onnxruntime(model, feeds)
    except InvalidArgument:
        sizes = [each.dim_value for each in model.graph.output[0].type.tensor_type.shape.dim]
        # -1 is an unknown size
        refusal = "has a dimension of -" if min(sizes) < -1 else "every axis must be at least 1"
        with pytest.raises(ModelError, match=refusal):
            made_of(model, feeds, bits)
    else:
        assert made_of(model, feeds, bits).shape == expected.shape


def made_of(model, feeds, bits):
    """Returns the interpreter's output, with accumulators of `bits` bits if set."""
    loaded = loading.from_proto(model)
    wrap = bits and AccumulatorEmulation(loaded, as_policy(bits, "8:5/8:7")).wrap
    return Interpreter(loaded, wrap_kernel=wrap).run(None, feeds)[0]


@quick
@given(st.integers(1, 3).flatmap(windows), st.booleans())
def test_max_pooling_and_its_indices(window, ceil_mode):
    size, attributes = window
    feeds = {"x": normal(2, 3, *size)}
    assume(not ceil_mode or max(attributes["dilations"]) == 1)
    agree(single("MaxPool", feeds, outputs=2, ceil_mode=int(ceil_mode), **attributes), feeds)


@quick
@given(st.integers(1, 3).flatmap(windows), st.booleans(), st.booleans())
def test_average_pooling(window, ceil_mode, include):
    size, attributes = window
    attributes["dilations"] = [1] * len(size)
    feeds = {"x": normal(2, 3, *size)}
    model = single(
        "AveragePool", feeds, ceil_mode=int(ceil_mode), count_include_pad=int(include), **attributes
    )
    agree(model, feeds)
