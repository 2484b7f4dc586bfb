"""When two models compute different things, and when rounding only adds up."""

from dataclasses import replace

import numpy as np
import pytest

from tests.analyzers.compare.tables import nodes
from tracer.analyzers.compare.numbers import Values, numbers, scores_of, sqnr
from tracer.analyzers.compare.views.tables import numbers_table
from tracer.analyzers.options import ViewOptions
from tracer.support.tolerance import Difference, Precision, Tolerance

OPS = ("Conv", "Relu", "Gemm", "Tanh", "Conv", "Relu", "Gemm")
RIGHT = Difference(0.0, 0.0, 0.0, 1.0, "")
WRONG = Difference(1.0, 0.5, 0.5, 0.9, "too far")


def values(label, arrays, ops=OPS, output=None):
    table = nodes([{"op_type": op, "module": op} for op in ops])
    by_node = dict(zip(table["node"], arrays, strict=True))
    outputs = [("y", arrays[-1] if output is None else output)]
    return Values(label, table, outputs, by_node, {"y": table["node"].iloc[-1]})


@pytest.fixture
def sides():
    """A model, and one whose values are 0.1 % apart from the third layer on."""
    arrays = [np.arange(1, 5, dtype=np.float32) + n for n in range(len(OPS))]
    apart = [array * np.float32(1 + 1e-3 * (n > 1)) for n, array in enumerate(arrays)]
    return values("a", arrays), values("b", apart)


def own(**wrong):
    keys = [f"{op}_{index}" for index, op in enumerate(OPS)]
    return {key: WRONG if key in wrong else RIGHT for key in keys}


def lines(result, **options):
    return " ".join(numbers_table(result, replace(ViewOptions(), **options)).lines)


def test_without_isolation_the_first_layer_out_of_tolerance_is_the_divergence(sides):
    result = numbers(*sides, Tolerance())
    assert (result.differ, result.first_divergence) == (True, "Gemm_2")
    assert "5 of 7 layers and 1 of 1 output differ, first in 'Gemm_2'" in lines(result)


def test_rounding_that_adds_up_is_no_difference_of_the_models(sides):
    result = numbers(*sides, Tolerance(), own=own())
    assert (result.differ, result.first_divergence) == (False, "Gemm_2")
    assert "every layer is within tolerance on the values of A" in lines(result)
    assert numbers(*sides, Tolerance(1e-4), own=own()).differ  # asked for
    assert not numbers(*sides, Tolerance(1e-2), own=own()).differ


def test_a_layer_that_differs_by_itself_is_one_wherever_rounding_began(sides):
    result = numbers(*sides, Tolerance(), own=own(Conv_4=True, Gemm_6=True))
    assert (result.differ, result.first_divergence) == (True, "Conv_4")
    assert "2 of 7 layers compute something else on the values of A, first in 'Conv_4'" in lines(
        result
    )


def test_a_layer_of_zeros_is_not_the_furthest():
    """The share of its scale is infinite, however small the error is."""
    arrays = [np.arange(1, 5, dtype=np.float32) * (n != 2) for n in range(len(OPS))]
    other = [array * np.float32(1 + 2**-20) + np.float32(6e-8) * (array == 0) for array in arrays]
    result = numbers(values("a", arrays), values("b", other), Tolerance())
    rows = numbers_table(result, ViewOptions()).rows
    (shown,) = rows[rows["what"] == "furthest layer"]["max_share"]
    assert 0 < shown < 1e-5


def test_the_first_three_layers_are_shown_and_all_of_them_with_notes(sides):
    wrong = own(Conv_0=True, Relu_1=True, Gemm_2=True, Tanh_3=True, Conv_4=True)
    result = numbers(*sides, Tolerance(), own=wrong)
    assert "2 more of these layers: --notes" in lines(result)
    assert len(numbers_table(result, ViewOptions()).rows) == 1 + 3
    assert len(numbers_table(result, replace(ViewOptions(), notes=True)).rows) == 1 + 5


def test_an_output_that_its_own_layer_has_not_is_a_difference(sides):
    first, _ = sides
    arrays = list(first.by_node.values())
    optimised = values("b", arrays, output=arrays[-1] * np.float32(1.01))
    result = numbers(first, optimised, Tolerance(), own=own())
    assert result.differ
    assert "0 of 7 layers and 1 of 1 output differ; output 'y' differs and its layer does not" in (
        lines(result)
    )


def test_rounding_elsewhere_does_not_excuse_an_output(sides):
    """The second layer rounds to more than the tolerance, and the output is not made of it."""
    first, _ = sides
    arrays = list(first.by_node.values())
    apart = [array * np.float32(1 + 1e-3 * (n == 1)) for n, array in enumerate(arrays)]
    right = values("b", apart)
    assert not numbers(first, right, Tolerance(), own=own()).differ
    optimised = values("b", apart, output=arrays[-1] * np.float32(1.01))
    result = numbers(first, optimised, Tolerance(), own=own())
    assert (result.differ, result.differing_optimised) == (True, ("y",))
    assert result.outputs["made_by"].tolist() == ["Gemm_6"]
    strange = replace(optimised, makers={})  # no common layer computes it
    assert numbers(first, strange, Tolerance(), own=own()).differing_optimised == ("y",)
    assert not numbers(first, replace(right, makers={}), Tolerance(), own=own()).differ


def test_the_tolerance_of_a_layer_grows_with_its_depth(sides):
    first, second = sides
    deep = dict.fromkeys(first.by_node, Precision(Precision.of(np.dtype("f4")).share, 10_000))
    assert numbers(first, second, Tolerance()).differ
    assert not numbers(first, second, Tolerance(), deep).differ


def test_half_precision_is_compared_with_single(sides):
    first, _ = sides
    halves = [array.astype(np.float16) for array in first.by_node.values()]
    result = numbers(first, values("b", halves), Tolerance())
    assert len(result.layers) == len(OPS)
    assert not result.differ
    off = numbers(first, values("b", [1.02 * half for half in halves]), Tolerance())
    assert off.differ
    assert not numbers(values("b", halves), first, Tolerance()).differ


def test_a_quantised_model_gets_signal_to_noise_and_no_verdict(sides):
    result = replace(numbers(*sides, Tolerance(), own=own()), no_verdict="b is quantised")
    assert not result.differ
    table = numbers_table(result, ViewOptions())
    assert "no verdict on 7 layers (b is quantised)" in table.lines
    assert table.rows["sqnr"].tolist() == pytest.approx([60] * 4, abs=0.1)
    assert "beyond" not in table.rows


def noisy(label, ratios):
    """A model whose layers have these signal-to-noise ratios in dB against `clean`."""
    signal = np.resize(np.float32([1, -1]), 1000)
    noise = np.resize(np.float32([1, 1, -1, -1]), 1000)  # uncorrelated with the signal
    return values(label, [signal + noise * np.float32(10 ** (-r / 20)) for r in ratios])


@pytest.mark.parametrize(
    ("ratios", "loss"),
    [
        ((40, 38, 37, 30, 29, 28, 25), None),
        ((40, 38, 37, 20, 19, 28, 2), ("Tanh_3", 37, 20)),
        ((40, 45, 38, 29, 28, 17, 17), ("Relu_5", 28, 17)),
    ],
)
def test_the_first_layer_of_a_quantised_model_that_loses_10_db_is_named(ratios, loss):
    result = numbers(noisy("a", [np.inf] * 7), noisy("b", ratios), Tolerance())
    result = replace(result, no_verdict="b is quantised")
    assert sqnr(result.layers["rms_share"]) == pytest.approx(ratios, abs=0.01)
    if loss is None:
        assert result.first_loss is None
        assert "large loss" not in lines(result)
    else:
        layer, before, after = loss
        assert result.first_loss == (layer, pytest.approx(before, 0.01), pytest.approx(after, 0.01))
        told = f"the first large loss is in '{layer}': from {before:.1f} dB to {after:.1f}"
        assert told in lines(result)


@pytest.mark.parametrize(("count", "share"), [(20, 0.0), (60, 0.02), (360, 0.01)])
def test_the_interval_of_a_share_of_right_samples_holds_also_where_hardly_any_differ(count, share):
    """Of samples that change with a probability each way, the true change is 0."""
    random, held = np.random.default_rng(0), 0
    for _ in range(400):
        first = np.where(random.random(count) < 0.9, 100.0, 0.0)
        second = np.where(random.random(count) < share, 100 - first, first)
        expected = 100 * share * (1 - 2 * 0.9)  # more right ones become wrong than wrong ones right
        scores = scores_of("b", "top1", "%", "digits", second, first)
        assert scores.low < scores.change < scores.high
        held += scores.low <= expected <= scores.high
    assert held >= 0.98 * 400
