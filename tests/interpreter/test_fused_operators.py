"""onnxruntime's fused activations, products and normalisations, held against onnxruntime itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import fused, normal, onnxruntime, quick
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter

ROWS = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 40))
KINDS = st.sampled_from([np.float32, np.float16])
ULPS = 8
"""Units in the last place of the largest value: both sides add terms in orders of their own."""


def agree(model, feeds):
    """Whether all outputs have onnxruntime's types, shapes, and values to a few units."""
    given_feeds = {name: value for name, value in feeds.items() if value is not None}
    expected = onnxruntime(model, given_feeds)
    for ours, theirs in zip(Interpreter(model).run(None, given_feeds), expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if theirs.dtype.kind != "f":
            np.testing.assert_array_equal(ours, theirs)
            continue
        unit = float(np.finfo(theirs.dtype).eps) * np.abs(theirs.astype(float)).max(initial=1e-3)
        np.testing.assert_allclose(
            ours.astype(float), theirs.astype(float), rtol=0, atol=ULPS * unit
        )


@quick
@given(st.sampled_from(["Gelu", "BiasGelu", "FastGelu", "QuickGelu"]), KINDS, ROWS, st.booleans())
def test_activations(op_type, kind, shape, biased):
    feeds = {"x": (3 * normal(*shape)).astype(kind)}
    if op_type == "BiasGelu" or (op_type == "FastGelu" and biased):
        feeds["bias"] = normal(shape[-1], seed=1).astype(kind)
    attributes = {"alpha": 1.3} if op_type == "QuickGelu" and biased else {}
    agree(fused(op_type, feeds, **attributes), feeds)


@quick
@given(st.integers(0, 15), st.lists(st.integers(1, 5), min_size=4, max_size=5), st.booleans())
def test_a_product_of_transposed_tensors(flags, sizes, scaled):
    last_a, last_b, batch_a, batch_b = (bool(flags >> bit & 1) for bit in range(4))
    batch, (rows, depth, columns) = tuple(sizes[3:]), sizes[:3]

    def stored(x, last, batch):
        x = np.swapaxes(x, -1, -2) if last else x
        return np.ascontiguousarray(np.moveaxis(x, -2, 0) if batch else x)

    feeds = {
        "a": stored(normal(*batch, rows, depth), last_a, batch_a),
        "b": stored(normal(*batch, depth, columns, seed=1), last_b, batch_b),
    }
    flags = {"transA": last_a, "transB": last_b, "transBatchA": batch_a, "transBatchB": batch_b}
    model = fused(
        "FusedMatMul", feeds, alpha=0.3 if scaled else 1.0, **{n: int(f) for n, f in flags.items()}
    )
    agree(model, feeds)


def test_the_older_name_of_a_product_of_transposed_tensors():
    feeds = {"a": normal(3, 5), "b": normal(4, 5)}
    agree(fused("TransposeMatMul", feeds, transB=1), feeds)


@quick
@given(KINDS, ROWS, st.sampled_from([-1, 1]))
def test_the_rms_normalisation_is_in_the_domain_of_onnx(kind, shape, axis):
    feeds = {"x": normal(*shape).astype(kind), "scale": normal(*shape[axis:]).astype(kind)}
    outputs = ("y", "inverse")
    model = fused("SimplifiedLayerNormalization", feeds, outputs, domain="", axis=axis)
    agree(model, feeds)
    other = fused("SimplifiedLayerNormalization", feeds, outputs, axis=axis)
    for a, b in zip(*(Interpreter(each).run(None, feeds) for each in (model, other)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_layer_normalisation_before_its_first_version_is_onnxruntimes():
    feeds = {"x": normal(2, 3, 8), "scale": normal(8), "shift": normal(8, seed=1)}
    model = fused("LayerNormalization", feeds, domain="", epsilon=1e-3)
    model.opset_import[0].version = 14
    agree(model, feeds)


@quick
@given(KINDS, ROWS, st.sampled_from(["whole", "one", "none"]), st.booleans(), st.booleans())
def test_a_sum_and_its_normalisation(kind, shape, batch, shifted, biased):
    skip = {"whole": shape, "one": (1, *shape[1:]), "none": shape[1:]}[batch]
    feeds = {
        "x": normal(*shape).astype(kind),
        "skip": normal(*skip, seed=1).astype(kind),
        "gamma": normal(shape[-1], seed=2).astype(kind),
        "beta": normal(shape[-1], seed=3).astype(kind) if shifted else None,
        "bias": normal(shape[-1], seed=4).astype(kind) if biased else None,
    }
    agree(fused("SkipLayerNormalization", feeds, ("y", "mean", "inverse", "sum")), feeds)
    del feeds["beta"]
    outputs = ("y", "", "", "sum")
    agree(fused("SkipSimplifiedLayerNormalization", feeds, outputs, epsilon=1e-4), feeds)


@quick
@given(KINDS, ROWS, st.booleans(), st.booleans(), st.sampled_from([None, 1, 2]))
def test_embeddings_and_their_normalisation(kind, shape, segments, masked, places):
    rng = np.random.default_rng(0)
    batch, tokens, width = min(shape[0], 2), *shape[1:]

    def ids(most, rows=batch):
        return rng.integers(0, most, (rows, tokens)).astype(np.int32)

    lengths = rng.integers(1, tokens + 1, (batch, 1))
    feeds = {
        "ids": ids(11),
        "segments": ids(2) if segments else None,
        "words": normal(11, width).astype(kind),
        "positions": normal(9, width, seed=1).astype(kind),
        "segment_table": normal(2, width, seed=2).astype(kind) if segments else None,
        "gamma": normal(width, seed=3).astype(kind),
        "beta": normal(width, seed=4).astype(kind),
        "mask": (np.arange(tokens) < lengths).astype(np.int32) if masked else None,
        "places": ids(9, (1, batch)[places - 1]) if places else None,
    }
    agree(fused("EmbedLayerNormalization", feeds, ("y", "counted", "sum"), epsilon=1e-5), feeds)


@quick
@given(ROWS, st.booleans(), st.booleans(), st.sampled_from([np.uint8, np.int8]))
def test_embeddings_of_bytes_and_their_normalisation(shape, segments, masked, kind):
    rng = np.random.default_rng(0)
    batch, tokens, width = min(shape[0], 2), *shape[1:]

    def codes(*sizes):
        return rng.integers(0, 100, sizes).astype(kind)

    def number(value, dtype=np.float32):
        return np.array(value, dtype)

    feeds = {
        "ids": rng.integers(0, 11, (batch, tokens)).astype(np.int32),
        "segments": rng.integers(0, 2, (batch, tokens)).astype(np.int32) if segments else None,
        "words": codes(11, width), "positions": codes(9, width),
        "segment_table": codes(2, width) if segments else None,
        "gamma": codes(width), "beta": codes(width),
        "mask": np.ones((batch, tokens), np.int32) if masked else None,
        "words_scale": number(0.02), "positions_scale": number(0.03),
        "segments_scale": number(0.01) if segments else None,
        "gamma_scale": number(0.01), "beta_scale": number(0.02),
        "words_zero": number(50, kind), "positions_zero": number(60, kind),
        "segments_zero": number(40, kind) if segments else None,
        "gamma_zero": number(0, kind), "beta_zero": number(64, kind),
    }  # fmt: skip
    fed = {name: feeds[name] for name in ("ids", "segments", "mask") if feeds[name] is not None}
    stored = [name for name in feeds if name not in fed and feeds[name] is not None]
    agree(fused("QEmbedLayerNormalization", feeds, ("y", "counted"), stored, epsilon=1e-5), fed)


BAD = {
    "a skip of other tokens": (
        "SkipLayerNormalization", ((2, 3, 8), (2, 4, 8), (8,)), "skip of shape [2, 4, 8]"),
    "a scale of other columns": (
        "SkipLayerNormalization", ((2, 3, 8), (2, 3, 8), (7,)), "gamma of shape [7]"),
    "a bias of other columns": (
        "SkipLayerNormalization", ((2, 3, 8), (2, 3, 8), (8,), (8,), (4,)), "bias of shape [4]"),
}  # fmt: skip


@pytest.mark.parametrize(("op_type", "shapes", "reason"), BAD.values(), ids=BAD)
def test_shapes_that_do_not_fit_are_told_with_the_node(op_type, shapes, reason):
    feeds = {f"x{i}": normal(*shape) for i, shape in enumerate(shapes)}
    with pytest.raises(ModelError) as caught:
        Interpreter(fused(op_type, feeds)).run(None, feeds)
    assert "'node'" in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("wrong", [-1, 11])
def test_an_id_without_a_row_is_told(wrong):
    feeds = {
        "ids": np.array([[0, wrong]], np.int32), "segments": None, "words": normal(11, 4),
        "positions": normal(9, 4), "segment_table": None, "gamma": normal(4), "beta": normal(4),
    }  # fmt: skip
    model = fused("EmbedLayerNormalization", feeds)
    with pytest.raises(ModelError, match=f"input_ids has {wrong}, and its table has 11 rows"):
        Interpreter(model).run(None, {n: v for n, v in feeds.items() if v is not None})
