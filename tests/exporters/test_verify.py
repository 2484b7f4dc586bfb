import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tracer.errors import ModelError, ThresholdError
from tracer.exporters.pipeline import difference, verify
from tracer.exporters.records import Conversion, ExportOptions, InputSpec
from tracer.graph.provenance import describe
from tracer.support.tolerance import max_abs_difference

OPTIONS = ExportOptions()
CHAIN = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[N,3] x) => (float[N,3] c) <float k = {2.0}> {
  [first] a = Relu (x)
  [second] b = Mul (a, k)
  [third] c = Neg (b)
}
"""


def conversion(factor):
    """The chain beside a framework that multiplies by `factor` where the graph does by 2."""
    proto = onnx.parser.parse_model(CHAIN)
    describe(proto.graph.node[1], "net.scale", "net.py:7")

    def values(arrays):
        a = np.maximum(arrays[0], 0)
        b = a * np.float32(factor)
        return {"a": a, "b": b, "c": -b}

    return Conversion(proto, lambda arrays: [values(arrays)["c"]], values, (InputSpec((2, 3)),))


X = np.array([[1, -2, 3]], np.float32)


def test_equal_outputs_pass_with_their_largest_difference():
    assert verify(conversion(2), [X], OPTIONS, "ours") == 0
    assert verify(conversion(2.00001), [X], OPTIONS, "ours") == pytest.approx(3e-5, rel=0.1)


def test_a_difference_names_the_first_node_that_differs_with_its_module_and_line():
    with pytest.raises(ThresholdError) as caught:
        verify(conversion(2.1), [X], OPTIONS, "ours")
    assert caught.value.exit_code == 1
    assert "output 'c': the largest error is 0.048 of the largest value" in caught.value.what
    assert "differs is 'second' (Mul) of module 'net.scale', net.py:7" in caught.value.what


def test_an_output_of_another_shape_or_type_differs():
    zeros = np.zeros((2, 3), np.float32)
    assert difference(zeros, zeros.T, OPTIONS) == "float32[2,3] is not float32[3,2]"
    assert difference(zeros, zeros.astype("d"), OPTIONS) == "float32[2,3] is not float64[2,3]"
    assert difference(np.array([1, 2]), np.array([1, 3]), OPTIONS) == (
        "the largest error is 1 (allowed: 1e-08)"
    )


def test_a_model_with_another_number_of_outputs_is_refused():
    whole = conversion(2)
    halved = Conversion(whole.proto, lambda arrays: [], whole.values)
    with pytest.raises(ModelError, match="gives 0 outputs, the export 1"):
        verify(halved, [X], OPTIONS, "ours")


SPECIAL = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, 1.0])
ARRAYS = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4), elements=SPECIAL)


@given(ARRAYS)
def test_nan_and_infinity_equal_themselves(array):
    assert difference(array, array.copy(), OPTIONS) == ""
    assert max_abs_difference(array, array.copy()) == 0


@given(ARRAYS)
def test_nan_and_infinity_in_other_places_differ(array):
    other = np.where(np.isfinite(array), np.float32(np.nan), array)
    assert bool(difference(array, other, OPTIONS)) == bool(np.isfinite(array).any())


@given(st.floats(1e-3, 1e6), st.floats(0, 3), st.integers(0, 1))
def test_the_default_tolerance_of_every_element_scales_with_the_largest_value(scale, factor, at):
    expected = np.array([0, scale], np.float64)
    allowed = 1e-8 + 1e-4 * scale
    actual = expected.copy()
    actual[at] += factor * allowed
    off = float(np.abs(actual - expected).max())
    assert bool(difference(actual, expected, OPTIONS)) == (off > allowed)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(0, 1), st.floats(0, 1e6))
def test_tolerances_are_those_of_numpy(ours, theirs, rtol, atol):
    ours, theirs = np.array([ours]), np.array([theirs])
    close = np.abs(ours - theirs) <= atol + rtol * np.abs(theirs)
    fault = difference(ours, theirs, ExportOptions(rtol=rtol, atol=atol))
    assert bool(fault) == (not close.all())
