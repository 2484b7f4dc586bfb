"""Layouts are built here index by index, as their definitions say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.records.tensor_match import (
    ANY_ORDER,
    LAYOUT,
    SAME_SHAPE,
    Candidates,
    differs_clearly,
    match,
    numeric_tensor,
)

sizes = st.integers(1, 5)
blocks = st.sampled_from([4, 8, 16])
seeds = st.integers(0, 2**32 - 1)


def tensor(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def blocked(x, block, padding=0.0):
    """NCHW to N, C/block, H, W, block: the layout of com.microsoft.nchwc, in an NCHW shape."""
    n, c, h, w = x.shape
    padded = -(-c // block) * block
    out = np.full((n, padded // block, h, w, block), padding, x.dtype)
    for i, j, k, m in np.ndindex(n, c, h, w):
        out[i, j // block, k, m, j % block] = x[i, j, k, m]
    return out.reshape(n, padded, h, w)


def read(candidate, original):
    return match(numeric_tensor(candidate), numeric_tensor(original))


@given(st.tuples(sizes, st.integers(1, 20), sizes, sizes), blocks, seeds, st.floats(-2, 2))
def test_a_blocked_and_padded_tensor_is_read_whatever_the_padding_holds(shape, block, seed, pad):
    x = tensor(shape, seed)
    candidate = blocked(x, block, np.float32(pad))
    assert read(candidate, x) in (SAME_SHAPE, LAYOUT)


@given(st.lists(sizes, min_size=3, max_size=5), seeds)
def test_channels_last_is_read(shape, seed):
    x = tensor(shape, seed)
    assert read(np.ascontiguousarray(np.moveaxis(x, 1, -1)), x) in (SAME_SHAPE, LAYOUT)


@given(st.lists(sizes, min_size=2, max_size=4), seeds)
def test_another_shape_is_read(shape, seed):
    x = tensor(shape, seed)
    assert read(x.reshape(-1), x) == LAYOUT


@given(st.lists(sizes, min_size=2, max_size=4), seeds)
def test_any_order_is_read_and_is_the_weakest(shape, seed):
    x = tensor(shape, seed)
    candidate = np.random.default_rng(seed + 1).permutation(x.reshape(-1))
    same = np.array_equal(candidate, x.reshape(-1))
    assert read(candidate, x) in ((SAME_SHAPE, LAYOUT) if same else (LAYOUT, ANY_ORDER))
    assert read(x, x) == SAME_SHAPE


@given(st.tuples(sizes, st.integers(1, 20), sizes, sizes), blocks, seeds, st.data())
def test_one_value_that_differs_is_seen_in_every_layout(shape, block, seed, data):
    x = tensor(shape, seed)
    other = x.copy()
    index = data.draw(st.integers(0, x.size - 1))
    other.reshape(-1)[index] += 1
    for candidate in (x, blocked(x, block), np.moveaxis(x, 1, -1), np.sort(x, axis=None)):
        assert read(np.ascontiguousarray(candidate), other) is None


@given(st.lists(sizes, min_size=1, max_size=4), seeds)
def test_rounding_of_another_order_of_sums_is_no_difference(shape, seed):
    x = tensor(shape, seed)
    scale = np.float32(1 + 2e-6)
    assert read(x * scale, x) == SAME_SHAPE


def test_an_outlier_is_no_scale_for_the_others():
    x = np.array([-3.4e38, 1, 2, 3], np.float32)
    assert read(x + np.array([0, 0, 0, 1], np.float32), x) is None


def test_nan_and_infinity_equal_themselves():
    x = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert read(x, x) == SAME_SHAPE
    assert read(np.nan_to_num(x), x) is None


@pytest.mark.filterwarnings("error")
def test_rounded_tensors_with_infinities_match_only_themselves():
    x = numeric_tensor(np.array([-np.inf, 1, 2, 3], np.float32))
    other = numeric_tensor(np.array([-np.inf, 1, 2, 4], np.float32))
    assert "same" in Candidates({"same": x, "other": other}, rounded=True).near(x)
    assert match(x, x, rounded=True) == SAME_SHAPE
    assert match(other, x, rounded=True) is None
    scalar = numeric_tensor(np.array(np.inf, np.float32))
    assert match(scalar, scalar, rounded=True) == SAME_SHAPE


@pytest.mark.parametrize("value", [None, np.ones((0, 3)), [], [np.ones(2), None], {}])
def test_what_holds_nothing_is_not_compared(value):
    assert numeric_tensor(value) is None


def test_text_sequences_and_maps_are_compared_by_what_they_hold():
    text, other = np.array([["a", "b"]], object), np.array([["a", "c"]], object)
    assert read(text.astype("U1"), text) == SAME_SHAPE and read(other, text) is None
    even, uneven = [np.ones((2, 3)), np.zeros((2, 3))], [np.ones((2, 3)), np.zeros(5)]
    assert read(list(even), even) == read(list(uneven), uneven) == SAME_SHAPE
    assert read(even[::-1], even) == ANY_ORDER and read(uneven, even) is None
    assert read(np.concatenate(even), even) == LAYOUT
    maps = [{1: 0.25, 2: 0.75}, {1: 0.5, 2: 0.5}]
    swapped = [dict(reversed(each.items())) for each in maps]
    assert read(swapped, maps) == SAME_SHAPE
    assert read([{1: 0.25, 2: 0.75}, {1: 0.5, 2: 0.625}], maps) is None


def test_integers_have_to_be_the_same_and_are_no_floats():
    x = np.array([1, 2, 3])
    assert read(x, x) == SAME_SHAPE
    assert read(x + np.array([0, 0, 1]), x) is None
    assert read(x.astype(np.float32), x) is None


def test_int8_is_the_uint8_that_onnxruntime_makes_of_it():
    x = np.arange(-128, 128).astype(np.int8)
    assert read((x.astype(np.int16) + 128).astype(np.uint8), x) == SAME_SHAPE
    assert read(x.astype(np.uint8), x) in (None, ANY_ORDER)
    assert read(np.array(-128, np.int8), np.array(0, np.uint8)) == SAME_SHAPE


@pytest.mark.parametrize(("steps", "is_clear"), [([0, 1, 1, 1], False), ([0, 3, -3, 3], True)])
def test_a_step_of_the_quantiser_behind_an_output_is_no_clear_difference(steps, is_clear):
    step, theirs = np.float32(1 / 255), np.array([25, 26, 25, 26], np.float32)
    ours, theirs = (numeric_tensor(each * step) for each in (theirs + np.float32(steps), theirs))
    assert differs_clearly(ours, theirs, True, float(step)) == is_clear
    assert differs_clearly(ours, theirs, True)  # of no quantiser
    assert not differs_clearly(theirs, theirs, True)


@given(st.lists(sizes, min_size=1, max_size=4), seeds, st.floats(1e-3, 0.2), st.floats(-1e4, 1e4))
def test_candidates_behind_a_quantiser_leave_out_nothing_that_matches(shape, seed, step, shift):
    """Any rounding, in any order, on any offset: the mean and the spread bound the difference."""
    x = tensor(shape, seed) + np.float32(shift)
    rounded = np.round(x / step) * step
    order = np.random.default_rng(seed + 1).permutation(x.size)
    tensors = {
        "rounded": rounded,
        "moved": rounded.reshape(-1)[order],
        "opposite": 2 * x.mean() - x,
        "unlike": tensor(shape, seed + 2),
    }
    numeric = {name: numeric_tensor(each) for name, each in tensors.items()}
    original = numeric_tensor(x)
    matching = {n for n, each in numeric.items() if match(each, original, rounded=True) is not None}
    assert matching <= set(Candidates(numeric, rounded=True).near(original))


def test_candidates_behind_a_quantiser_are_few():
    layers = {str(i): numeric_tensor(tensor((8, 64), i) * 1.5**i) for i in range(20)}
    shifted = {f"{i} shifted": numeric_tensor(layers[str(i)].array + 1.5**i) for i in range(20)}
    candidates = Candidates({**layers, **shifted}, rounded=True)
    for name, original in layers.items():
        assert candidates.near(original) == [name]


@given(st.tuples(sizes, st.integers(1, 20), sizes, sizes), blocks, seeds, st.booleans())
def test_candidates_hold_every_layout(shape, block, seed, rounded):
    x = tensor(shape, seed)
    tensors = {
        "as it is": x,
        "blocked": blocked(x, block),
        "channels last": np.ascontiguousarray(np.moveaxis(x, 1, -1)),
        "flat": x.reshape(-1),
        "in order": np.sort(x, axis=None),
    }
    numeric = {name: numeric_tensor(each) for name, each in tensors.items()}
    original = numeric_tensor(x)
    assert all(match(each, original, rounded) is not None for each in numeric.values())
    assert set(Candidates(numeric, rounded).near(original)) == set(tensors)


def test_candidates_of_another_size_have_padded_channels():
    x = tensor((1, 6, 3, 3), 0)
    shapes = [(1, 8, 3, 3), (1, 16, 3, 3), (1, 12, 3, 3), (1, 8, 3, 4), (2, 8, 3, 3), (8, 9), (72,)]
    others = {str(shape): numeric_tensor(tensor(shape, 1)) for shape in shapes}
    assert set(Candidates(others).near(numeric_tensor(x))) == {"(1, 8, 3, 3)", "(1, 16, 3, 3)"}


@pytest.mark.parametrize("rounded", [False, True])
def test_each_tensor_is_compared_with_few_of_many(rounded, monkeypatch):
    compared, isclose = [], np.isclose

    def counting(ours, *others, **options):
        compared.append(len(ours))
        return isclose(ours, *others, **options)

    monkeypatch.setattr(np, "isclose", counting)
    tensors = {n: numeric_tensor(tensor((4, 16), n) * 1e-3 + n) for n in range(1000)}
    candidates = Candidates(tensors, rounded)
    assert all(n in candidates.near(each) for n, each in tensors.items())
    assert sum(compared) < 3 * len(tensors)  # not their square
