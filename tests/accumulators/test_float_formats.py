"""Float formats and casts, against ml_dtypes and numpy."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.accumulators.floats.casting import cast
from tracer.accumulators.spec.float_accumulator import FloatFormat, FloatRounding, float_format
from tracer.errors import UsageError

BYTES = {
    "fp8-e4m3": "float8_e4m3fn", "fp8-e5m2": "float8_e5m2", "fp8-e4m3fnuz": "float8_e4m3fnuz",
    "fp8-e5m2fnuz": "float8_e5m2fnuz", "e4m3": "float8_e4m3", "e3m4": "float8_e3m4",
    "e4m3fnuz:11": "float8_e4m3b11fnuz", "fp6-e2m3": "float6_e2m3fn", "fp6-e3m2": "float6_e3m2fn",
    "fp4-e2m1": "float4_e2m1fn",
}  # fmt: skip
WIDER = {"fp16": "float16", "bf16": "bfloat16"}


def known(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def numbers(dtype):
    """Every finite number of a type of 8 bits or fewer."""
    codes = np.arange(1 << ml_dtypes.finfo(dtype).bits, dtype=np.uint8)
    values = codes.view(dtype).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


@pytest.mark.parametrize("spelling", {**BYTES, **WIDER})
def test_limits_are_those_of_ml_dtypes(spelling):
    form, info = float_format(spelling), ml_dtypes.finfo(known({**BYTES, **WIDER}[spelling]))
    assert form.largest == float(info.max)
    assert form.least_normal == float(info.smallest_normal)
    assert 2.0**form.least_bit == float(info.smallest_subnormal)


@pytest.mark.parametrize(("spelling", "name"), BYTES.items())
def test_every_code_and_every_number_between_two_codes_is_cast_as_ml_dtypes_casts(spelling, name):
    codes = numbers(known(name))
    middle = (codes[1:] + codes[:-1]) / 2
    beyond = codes[-1] * np.array([1.01, 1.03, 1.06, 1.2, 1.5, 2, 100])
    around = [np.nextafter(middle, side) for side in (-np.inf, np.inf)]
    values = np.concatenate([codes, middle, *around, beyond, -beyond, [0.0, -0.0]])
    # a float64 would be rounded twice by ml_dtypes, which casts it to float32 first
    values = values[values == values.astype(np.float32)]
    want = values.astype(np.float32).astype(known(name)).astype(np.float32)
    np.testing.assert_array_equal(cast(values, float_format(spelling)), want)
    got = np.signbit(cast(np.array([-0.0]), float_format(spelling)))
    assert got == np.signbit(np.array([-0.0], np.float32).astype(known(name)).astype(np.float32))


@pytest.mark.parametrize("spelling", [*BYTES, *WIDER, "tf32", "fp32", "e6m9", "e4m7f:10", "e5m4"])
def test_float32_is_cast_as_the_same_numbers_in_float64(spelling):
    """Which numpy rounds, where a kernel rounds float32; NaN and infinity are among them."""
    bits = np.random.default_rng(4).integers(0, 2**32, 40000).astype(np.uint32)
    values, form = bits.view(np.float32), float_format(spelling)
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
    for saturates in (False, True):
        got, want = (cast(each, form, saturates=saturates) for each in (values, wide))
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize(("spelling", "name"), [*BYTES.items(), *WIDER.items()])
def test_samples_are_cast_as_ml_dtypes_casts(spelling, name):
    random = np.random.default_rng(3)
    form = float_format(spelling)
    spread = random.uniform(form.least_bit - 3, form.largest_exponent + 3, 20_000)
    with np.errstate(over="ignore"):
        values = (random.choice([-1, 1], 20_000) * np.exp2(spread)).astype(np.float32)
        want = values.astype(known(name)).astype(np.float32)
    np.testing.assert_array_equal(cast(values, form), want)


@pytest.mark.parametrize("spelling", ["fp16", "bf16"])
def test_every_number_of_16_bits_stays(spelling):
    values = np.arange(1 << 16, dtype=np.uint16).view(known(WIDER[spelling])).astype(np.float32)
    np.testing.assert_array_equal(cast(values, float_format(spelling)), values)


@pytest.mark.parametrize("spelling", ["fp8-e4m3", "fp8-e5m2", "fp8-e4m3fnuz", "fp8-e5m2fnuz"])
def test_a_saturated_cast_is_that_of_onnx(spelling):
    """ml_dtypes makes NaN or infinity of what is too large, ONNX's Cast the largest number."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    name = BYTES[spelling].replace("_", "").upper()
    node = helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, name), saturate=1)
    back = helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT)
    graph = helper.make_graph(
        [node, back], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [None])],
    )  # fmt: skip
    form = float_format(spelling)
    values = form.largest * np.array([0.3, 1, 1.01, 1.06, 1.5, 3, -1.5, np.inf, -np.inf, np.nan])
    values = values.astype(np.float32)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    (want,) = ReferenceEvaluator(model).run(None, {"x": values})
    np.testing.assert_array_equal(cast(values, form, saturates=True), want)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_rounding_towards_0_and_down_bracket_a_number(value):
    form = FloatFormat(5, 4)
    value = float(np.clip(value, -form.largest, form.largest))
    nearest, rz, down = (
        Fraction(float(cast(np.array([value]), form, FloatRounding(name))[0]))
        for name in ("rne", "rz", "floor")
    )
    exact = Fraction(value)
    step = Fraction(2) ** int(max(np.frexp(value)[1] - 1, form.least_exponent) - 4)
    assert down == exact // step * step
    assert rz == int(exact / step) * step  # int drops the fraction
    assert nearest == round(exact / step) * step  # round takes the even one of two


def test_stochastic_rounding_goes_up_with_the_probability_of_the_rest():
    values = np.full(100_000, -1.3)
    got = cast(values, FloatFormat(5, 1), FloatRounding("sr", 7))
    assert set(got) == {-1.0, -1.5}
    assert np.mean(got == -1.5) == pytest.approx(0.6, abs=0.01)  # 6 standard deviations
    again = cast(values, FloatFormat(5, 1), FloatRounding("sr", 7))
    np.testing.assert_array_equal(got, again)
    assert (got != cast(values, FloatFormat(5, 1), FloatRounding("sr", 8))).any()


def test_subnormal_numbers_are_kept_flushed_or_replaced_by_normal_ones():
    values = np.array([0.1, 0.2, 0.24, -0.2, 0.25])
    kept, flushed, none = (
        cast(values, FloatFormat(3, 2, subnormals=each)) for each in ("kept", "flushed", "none")
    )
    np.testing.assert_array_equal(kept, np.float32([0.125, 0.1875, 0.25, -0.1875, 0.25]))
    np.testing.assert_array_equal(flushed, np.float32([0, 0, 0.25, 0, 0.25]))
    np.testing.assert_array_equal(none, np.float32([0, 0.1875, 0.25, -0.1875, 0.25]))


@pytest.mark.parametrize("spelling", [*BYTES, *WIDER, "fp32", "tf32", "e6m9", "e4m7f:10", "e1m2f"])
def test_a_format_is_spelled_as_it_is_read(spelling):
    assert float_format(str(float_format(spelling))) == float_format(spelling)


@pytest.mark.parametrize(
    ("spelling", "what"),
    [("e9m3", "from 1 to 8 bits"), ("fp7", "is not a float format"), ("e1m3", "no normal number"),
     ("e8m7:200", "outside float32"), ("e5m24", "from 0 to 23 bits")],
)  # fmt: skip
def test_other_formats_are_refused(spelling, what):
    with pytest.raises(UsageError, match=what):
        float_format(spelling)
