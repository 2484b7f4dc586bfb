"""Operators of onnxruntime that resemble no standard one, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limited
from hypothesis import strategies as st

from tests.interpreter.models import agree, fused, normal, onnxruntime, quick
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter

few = limited(quick, max_examples=quick.max_examples // 3)
SIZE = st.integers(1, 6)
FLAG = st.booleans()


def whole(*numbers):
    return np.array(numbers, np.int32)


def equal(model, feeds):
    for ours, theirs in zip(Interpreter(model).run(None, feeds), onnxruntime(model, feeds),
                            strict=True):  # fmt: skip
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)


@few
@given(st.integers(1, 40), SIZE, st.sampled_from([16, 32, 64]), st.sampled_from([0, 1]))
def test_products_with_weights_of_bitsandbytes(depth, columns, block, kind):
    rng, weights = np.random.default_rng(depth), depth * columns
    feeds = {
        "a": normal(2, 3, depth),
        "b": rng.integers(0, 256, (weights + 1) // 2).astype(np.uint8),
        "absmax": rng.random(-(-weights // block)).astype(np.float32),
    }
    settings = {"K": depth, "N": columns, "block_size": block, "quant_type": kind}
    model = fused("MatMulBnb4", feeds, stored=("b", "absmax"), **settings)
    agree(model, {"a": feeds["a"]})


def test_weights_of_bitsandbytes_that_are_not_transposed():
    """onnxruntime reads beyond them; its product with the identity gives the weights themselves."""
    feeds = {
        "a": np.eye(8, dtype=np.float32),
        "b": np.random.default_rng(0).integers(0, 256, 28).astype(np.uint8),
        "absmax": normal(4),
    }
    settings = {"K": 8, "N": 7, "block_size": 16, "quant_type": 1}
    stored = ("b", "absmax")
    proto = fused("MatMulBnb4", feeds, stored=stored, **settings)
    (transposed,) = onnxruntime(proto, {"a": feeds["a"]})
    feeds["a"] = normal(3, 7)
    model = fused("MatMulBnb4", feeds, stored=stored, transB=0, **settings)
    (ours,) = Interpreter(model).run(None, {"a": feeds["a"]})
    np.testing.assert_allclose(ours, feeds["a"] @ transposed.T, rtol=1e-5)


@few
@given(SIZE, SIZE, SIZE, SIZE, st.sampled_from(["bilinear", "nearest"]))
def test_regions_of_images(height, width, rows, columns, mode):
    regions = np.random.default_rng(0).uniform(-0.3, 1.3, (5, 4)).astype(np.float32)
    regions[0] = [0, 0, 1, 1]
    feeds = {
        "x": normal(2, 3, height, width), "rois": regions, "at": whole(0, 1, 1, 0, 1),
        "size": whole(rows, columns),
    }  # fmt: skip
    agree(fused("CropAndResize", feeds, mode=mode, extrapolation_value=7.0), feeds)


@few
@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(1, 8), SIZE, SIZE)
def test_words_as_convolved_letters(lengths, window, size, filters):
    letters = np.random.default_rng(0).integers(1, 9, (len(lengths), 8)).astype(np.int32)
    letters[np.arange(8) >= np.array(lengths)[:, None]] = 0
    feeds = {"words": letters, "w": normal(filters, 1, window, size), "b": normal(filters),
             "letters": normal(9, size)}  # fmt: skip
    agree(fused("WordConvEmbedding", feeds), feeds)


def test_a_word_without_letters_is_0():
    """onnxruntime leaves the memory as it is."""
    feeds = {"words": whole([1, 2, 0], [0, 0, 0]), "w": normal(4, 1, 2, 3), "b": normal(4),
             "letters": normal(5, 3)}  # fmt: skip
    (vectors,) = Interpreter(fused("WordConvEmbedding", feeds)).run(None, feeds)
    assert vectors[0].any()
    assert not vectors[1].any()


@few
@given(SIZE, SIZE, SIZE, st.sampled_from(["euclidean", "sqeuclidean"]),
       st.sampled_from([np.float32, np.float64]))  # fmt: skip
def test_distances(rows, others, depth, metric, kind):
    feeds = {"a": normal(rows, depth).astype(kind), "b": normal(others, depth, seed=1).astype(kind)}
    agree(fused("CDist", feeds, metric=metric), feeds, atol=1e-3)


@few
@given(SIZE, SIZE, st.integers(0, 2))
def test_the_cheapest_path(rows, columns, most):
    """Small integers have many ties."""
    costs = np.random.default_rng(rows).integers(0, most + 1, (rows, columns)).astype(np.float32)
    equal(fused("DynamicTimeWarping", {"x": costs}), {"x": costs})


TEXTS = np.array([["a b,c", "dd é"], ["", "xyz  q,"]], object)


@few
@given(
    st.sampled_from([[" "], [" ", ","], [""], ["[ ,]+"], ["b", "a b"], ["(b|c)", "x"]]),
    FLAG, st.integers(1, 3),
)  # fmt: skip
def test_texts_between_separators(separators, mark, least):
    least = 1 if separators == [""] else least
    settings = {"mark": int(mark), "mincharnum": least, "pad_value": "#"}
    equal(fused("Tokenizer", {"x": TEXTS}, separators=separators, **settings), {"x": TEXTS})


@few
@given(st.sampled_from(["[a-z]+", "[a-z]", "b|xy", "x*", "."]), FLAG, st.integers(1, 2))
def test_texts_that_match(expression, mark, least):
    least = 1 if expression == "." else least
    settings = {"mark": int(mark), "mincharnum": least, "pad_value": "#"}
    equal(fused("Tokenizer", {"x": TEXTS}, tokenexp=expression, **settings), {"x": TEXTS})


@few
@given(st.sampled_from([np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64]),
       st.integers(0, 2**31 - 1))  # fmt: skip
def test_hashes_of_numbers(kind, seed):
    x = np.array([0, 1, 100, 2**31 - 1]).astype(kind)
    equal(fused("MurmurHash3", {"x": x}, seed=seed), {"x": x})


@few
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9),
                min_size=1, max_size=4))  # fmt: skip
def test_hashes_of_texts(texts):
    x = np.array(texts, object)
    equal(fused("MurmurHash3", {"x": x}), {"x": x})


@few
@given(st.integers(1, 9), st.integers(1, 4))
def test_repeated_tokens_are_blocked(tokens, size):
    feeds = {"ids": np.random.default_rng(0).integers(0, 3, (3, tokens)), "scores": normal(3, 4)}
    equal(fused("NGramRepeatBlock", feeds, ngram_size=size), feeds)


@few
@given(st.lists(st.integers(3, 6), min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 2),
       st.integers(0, 1))  # fmt: skip
def test_the_largest_of_what_a_mask_leaves(sizes, window, stride, pad):
    rank = len(sizes)
    rng = np.random.default_rng(0)
    feeds = {"x": normal(2, 3, *sizes), "m": rng.integers(0, 2, (1, 1, *sizes)).astype(np.int32)}
    settings = {"kernel_shape": [window] * rank, "strides": [stride] * rank}
    pads = [min(pad, window - 1)] * 2 * rank
    equal(fused("MaxpoolWithMask", feeds, pads=pads, **settings), feeds)


@few
@given(st.integers(0, 2), st.integers(1, 4), st.integers(1, 3))
def test_windows_along_an_axis(axis, size, step):
    x = normal(4, 5, 6)
    equal(fused("UnfoldTensor", {"x": x}, dim=axis - 1, size=size, step=step), {"x": x})


@few
@given(st.lists(st.integers(0, 1), min_size=4, max_size=4), st.integers(1, 3), FLAG)
def test_a_transposed_convolution_whose_pads_are_an_input(pads, stride, biased):
    feeds = {"x": normal(1, 2, 4, 5), "w": normal(2, 3, 3, 3), "pads": np.array(pads),
             "b": normal(3) if biased else None}  # fmt: skip
    model = fused("ConvTransposeWithDynamicPads", feeds, stored=("w",), strides=[stride] * 2)
    agree(model, {name: feeds[name] for name in ("x", "pads", "b")})


BAD = {
    "MatMulBnb4": (
        (normal(2, 8), np.zeros(9, np.uint8), normal(1)),
        {"K": 8, "N": 2, "block_size": 16, "quant_type": 1}, "B is [9]"),
    "CropAndResize": (
        (normal(1, 1, 4, 4), normal(1, 4), whole(1), whole(2, 2)), {}, "there are 1 images"),
    "WordConvEmbedding": (
        (whole([1, 9]), normal(2, 1, 1, 3), normal(2), normal(4, 3)), {}, "has 4, from 0"),
    "CDist": ((normal(2, 3), normal(2, 4)), {"metric": "euclidean"}, "rows of one length"),
    "DynamicTimeWarping": ((normal(2, 3, 4),), {}, "[2, 3, 4] are not [M, N]"),
    "Tokenizer": (
        (TEXTS,), {"mark": 0, "mincharnum": 1, "pad_value": "", "separators": ["("]},
        "no regular expression"),
    "NGramRepeatBlock": (
        (np.array([[7]]), normal(1, 4)), {"ngram_size": 1}, "there are 4, from 0"),
    "MaxpoolWithMask": (
        (normal(1, 2, 4), np.ones((1, 2, 4), np.int32)), {"kernel_shape": [2]},
        "mask is [1, 2, 4]"),
    "UnfoldTensor": ((normal(2, 3),), {"size": 4}, "windows of 4"),
}  # fmt: skip


@pytest.mark.parametrize("op_type", BAD)
def test_what_does_not_fit_is_told_with_the_node(op_type):
    arrays, attributes, reason = BAD[op_type]
    feeds = {f"x{index}": array for index, array in enumerate(arrays)}
    with pytest.raises(ModelError) as caught:
        Interpreter(fused(op_type, feeds, **attributes)).run(None, feeds)
    assert "'node'" in str(caught.value)
    assert reason in str(caught.value)
