"""GatherBlockQuantized against onnxruntime: every value to the last bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import fused, onnxruntime, quick
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter

FLAGS = st.booleans()


def table(shape, dtype, axes, block, zeros=False, bits=4, picked=(2, 3), kind=np.float32):
    """Feeds and attributes; `shape` is that of the codes, `axes` gathered and quantised."""
    rng = np.random.default_rng(0)
    blocks = list(shape)
    blocks[axes[1]] = -(-blocks[axes[1]] // block) if block else 1
    packed = dtype is np.uint8

    def codes(of, count):
        stored = (*of[:-1], -(-of[-1] * bits // 8)) if packed else of
        if packed:
            return rng.integers(0, 256, stored, np.uint8)
        return rng.integers(0, count, stored).astype(np.int8).astype(dtype)

    size = shape[axes[0]]
    feeds = {
        "data": codes(shape, 8),
        "indices": rng.integers(-size - 1, size + 1, picked),  # also out of range
        "scales": rng.standard_normal(blocks).astype(kind),
        "zeros": codes(blocks, 8) if zeros else None,
    }
    attributes = {
        "bits": bits, "block_size": block, "gather_axis": axes[0], "quantize_axis": axes[1]
    }  # fmt: skip
    return feeds, attributes


def node(feeds, attributes):
    stored = [name for name in ("data", "scales", "zeros") if feeds[name] is not None]
    given_feeds = {name: value for name, value in feeds.items() if value is not None}
    return fused("GatherBlockQuantized", given_feeds, stored=stored, **attributes)


def agree(feeds, attributes):
    model, fed = node(feeds, attributes), {"indices": feeds["indices"]}
    (ours,), (theirs,) = Interpreter(model).run(None, fed), onnxruntime(model, fed)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@quick
@given(st.sampled_from([2, 4, 8]), st.sampled_from([(7, 64), (7, 40), (5, 3, 64)]),
       st.sampled_from([16, 32]), FLAGS, st.sampled_from([np.float32, np.float16]))  # fmt: skip
def test_packed_codes(bits, shape, block, zeros, kind):
    agree(*table(shape, np.uint8, (0, len(shape) - 1), block, zeros, bits, kind=kind))


@quick
@given(
    st.sampled_from([ml_dtypes.int4, ml_dtypes.uint4]),
    st.sampled_from([((7, 64), (0, 1)), ((40, 6), (0, 0)), ((5, 40, 8), (2, 1)),
                     ((5, 40, 8), (1, 1)), ((5, 40, 8), (-1, -2))]),
    FLAGS, st.sampled_from([(), (4,), (2, 3)]),
)  # fmt: skip
def test_codes_of_a_type_of_their_own(dtype, place, zeros, picked):
    shape, axes = place
    agree(*table(shape, dtype, axes, 16, zeros, picked=picked))


@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize(
    "dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn]
)
def test_floats_of_8_and_4_bits(dtype, block):
    feeds, attributes = table((7, 64), dtype, (0, 1), block)
    agree(feeds, attributes)
    feeds["scales"] = feeds["scales"][:1]  # one row of scales for all
    agree(feeds, attributes)


PACKED, OF_PACKED = table((7, 64), np.uint8, (0, 1), 16, zeros=True)
BAD = {
    "a block that is no power of two": ({}, {"block_size": 24}, "the block size is 24"),
    "three bits": ({}, {"bits": 3}, "3 bits"),
    "packed codes gathered along the last axis": ({}, {"gather_axis": 1}, "gathered along axis 1"),
    "packed codes quantised along the first": ({}, {"quantize_axis": 0}, "quantised along 0"),
    "scales of other blocks": ({"scales": np.ones((7, 3), np.float32)}, {}, "scales are [7, 3]"),
    "zero points of another packing": (
        {"zeros": np.zeros((7, 4), np.uint8)}, {}, "zero_points are [7, 4], not [7, 2]"),
    "zero points of floats": (
        {"data": np.ones((7, 64), ml_dtypes.float8_e5m2)}, {}, "zero_points of a table of floats"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "attributes", "reason"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_told_with_the_node(changes, attributes, reason):
    model = node(PACKED | changes, OF_PACKED | attributes)
    with pytest.raises(ModelError) as caught:
        Interpreter(model).run(None, {"indices": PACKED["indices"]})
    assert "node 'node' (com.microsoft.GatherBlockQuantized" in str(caught.value)
    assert reason in str(caught.value)
