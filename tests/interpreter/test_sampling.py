"""GridSample and RoiAlign at random places; onnxruntime is the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import agree, normal, quick, single


@quick
@given(
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.booleans(),
    st.lists(st.integers(2, 5), min_size=2, max_size=3),
    st.integers(0, 99),
)
def test_grid_sample(mode, padding, corners, size, seed):
    size = size[:2] if mode == "cubic" else size  # onnxruntime has no cubic in three dimensions
    places = np.random.default_rng(seed).uniform(-2, 2, (2, 3, *size[1:], len(size)))
    feeds = {"x": normal(2, 3, *size), "grid": places.astype(np.float32)}
    model = single(
        "GridSample", feeds, opset=20, mode=mode, padding_mode=padding, align_corners=int(corners)
    )
    agree(model, feeds, rtol=1e-3, atol=1e-4)


@quick
@given(
    st.sampled_from(["avg", "max"]),
    st.integers(0, 3),
    st.sampled_from([0.25, 1.0]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from([10, 16]),
    st.integers(0, 99),
)
def test_roi_align(mode, ratio, scale, bins, opset, seed):
    ratio = 1 if mode == "max" else ratio  # onnxruntime says that its other maxima are wrong
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-2, 12, (5, 2))
    sizes = rng.uniform(0.1, 9, (5, 2))
    feeds = {
        "x": normal(2, 3, 8, 9),
        "rois": np.concatenate([corners, corners + sizes], axis=1).astype(np.float32),
        "images": rng.integers(0, 2, 5),
    }
    model = single(
        "RoiAlign", feeds, opset=opset, mode=mode, sampling_ratio=ratio, spatial_scale=scale,
        output_height=bins[0], output_width=bins[1],
    )  # fmt: skip
    agree(model, feeds, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_label_encoder_takes_every_nan_for_one_key(kind):
    from onnx.parser import parse_model

    from tracer.interpreter.interpreter import Interpreter

    name = {np.float32: "float", np.float64: "double"}[kind]
    model = parse_model(
        f"""<ir_version: 10, opset_import: ["" : 17, "ai.onnx.ml" : 4]>
        g ({name}[3] x) => (int64[3] y) {{ y = ai.onnx.ml.LabelEncoder
        <keys_tensor = {name}[2] {{1.5, nan}}, values_int64s = [4, 5], default_int64 = 6> (x) }}"""
    )
    (mapped,) = Interpreter(model).run(None, {"x": np.array([-np.nan, 1.5, 2], kind)})
    np.testing.assert_array_equal(mapped, [5, 4, 6])
