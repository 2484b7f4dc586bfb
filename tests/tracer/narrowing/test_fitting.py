"""Layers fitted to registers of all kinds: no input exceeds them, in int64; nor the samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import quick
from tests.tracer.narrowing.oracle import worst
from tracer.narrowing.fitting import fit_layer, fits_already
from tracer.narrowing.layers import Grid, Layer
from tracer.narrowing.requirement import MARGIN, Need
from tracer.narrowing.samples import LayerSamples, largest_sums


def samples(seed, depth, groups, grid, with_bias, weight_bits, has_one_scale):
    """A random layer of two outputs for each group, and what it reads."""
    random = np.random.default_rng(seed)
    rows = 2 * groups
    scales = random.uniform(1e-3, 1, 1 if has_one_scale else rows) * np.ones(rows)
    most = (1 << weight_bits - 1) - 1
    integers = random.integers(-most, most + 1, (rows, depth)).astype(float)
    bias = random.normal(0, random.choice([1, 1e4]), rows) if with_bias else None
    layer = Layer(
        "l", "Gemm", integers, scales, bias, grid, (rows, depth), False, groups, {},
        weight_bits, has_one_scale=has_one_scale,
    )  # fmt: skip
    wide = random.integers(grid.low, grid.high + 1, (50, groups, depth)) * grid.step
    products = np.einsum("ngk,gmk->ngm", wide, layer.weights.reshape(groups, 2, depth))
    wanted = products.reshape(50, rows)
    wanted = wanted if bias is None else wanted + bias
    read = wide + random.normal(0, grid.step, wide.shape)
    return LayerSamples(layer, wide, read, wanted)


LAYERS = st.builds(
    samples,
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, 3),
    st.builds(Grid, st.sampled_from([0.01, 1.0, 50.0]), st.integers(-128, 0), st.integers(1, 127)),
    st.booleans(),
    st.integers(2, 8),
    st.booleans(),
)


@quick
@given(LAYERS, st.integers(2, 20), st.none() | st.integers(1, 40), st.booleans())
def test_no_input_exceeds_the_registers(samples, bits, tile, centred):
    layer, need = samples.layer, Need(bits, tile)
    fit = fit_layer(samples, layer.grid, need.registers(layer.depth), centred)
    bias = np.zeros(len(fit.integers)) if fit.bias is None else fit.bias
    top, bottom = worst(
        fit.integers.astype(np.int64), layer.grid.low, layer.grid.high, bias.astype(np.int64), tile
    )
    assert top < 1 << bits - 1
    assert bottom >= -(1 << bits - 1)
    assert np.abs(fit.integers).max() <= (1 << layer.weight_bits - 1) - 1


@quick
@given(LAYERS, st.integers(4, 20))
def test_the_error_is_that_of_the_outputs_and_one_scale_stays_one(samples, bits):
    layer, grid = samples.layer, samples.layer.grid
    fit = fit_layer(samples, grid, Need(bits).registers(layer.depth))
    read = np.clip(np.rint(samples.read / grid.step), grid.low, grid.high)
    rows = fit.integers.reshape(layer.groups, 2, layer.depth)
    sums = np.einsum("ngk,gmk->ngm", read, rows).reshape(len(read), -1)
    sums = sums if fit.bias is None else sums + fit.bias
    lost = samples.wanted - sums * fit.scales * grid.step
    assert np.isclose((lost**2).mean(0).sum(), fit.error, rtol=1e-3, atol=1e-5 * fit.power)
    assert not layer.has_one_scale or len(set(fit.scales)) == 1


@quick
@given(LAYERS, st.integers(2, 20), st.none() | st.integers(1, 40))
def test_for_some_data_no_step_is_finer_than_their_sums_allow(samples, bits, tile):
    layer, registers = samples.layer, Need(bits, tile, "this-data").registers(samples.layer.depth)
    fit = fit_layer(samples, layer.grid, registers)
    allowed = largest_sums(layer, samples.wide, registers) * MARGIN / registers.need.largest
    assert (fit.scales * layer.grid.step >= allowed * (1 - 1e-12)).all()
    assert np.abs(fit.integers).max() <= (1 << layer.weight_bits - 1) - 1


@quick
@given(LAYERS, st.integers(2, 20), st.integers(1, 39))
def test_both_parts_of_a_split_layer_fit(samples, bits, cut):
    layer = samples.layer
    starts = (0, cut) if cut < layer.depth else (0,)
    fit = fit_layer(samples, layer.grid, replace(Need(bits).registers(layer.depth), starts=starts))
    bias = np.zeros(len(fit.integers)) if fit.bias is None else fit.bias
    for number, part in enumerate(np.split(fit.integers, starts[1:], axis=1)):
        own = bias.astype(np.int64) if number == 0 else 0
        top, bottom = worst(part.astype(np.int64), layer.grid.low, layer.grid.high, own)
        assert top < 1 << bits - 1
        assert bottom >= -(1 << bits - 1)


@quick
@given(LAYERS, st.none() | st.integers(1, 40))
def test_the_reach_of_samples_is_that_of_their_partial_sums_in_order(samples, tile):
    layer, registers = samples.layer, Need(16, tile).registers(samples.layer.depth)
    most = [0] * len(layer.integers)
    for row, weights in enumerate(layer.weights):
        for inputs in samples.read[:, row // 2]:
            total = layer.bias[row] if layer.bias is not None and tile is None else 0.0
            most[row] = max(most[row], abs(total))
            for place, (weight, x) in enumerate(zip(weights, inputs, strict=True)):
                total = weight * x + (0.0 if tile is not None and place % tile == 0 else total)
                most[row] = max(most[row], abs(total))
    assert np.allclose(largest_sums(layer, samples.read, registers), most, rtol=1e-9)


@quick
@given(LAYERS, st.integers(4, 20))
def test_a_layer_fits_its_data_where_its_sums_and_the_margin_do(samples, bits):
    need, layer = Need(bits, guarantee="this-data"), samples.layer
    units = layer.scales * layer.grid.step
    reached = largest_sums(layer, samples.read, need.registers(layer.depth)) / units
    assert fits_already(samples, need) == bool((reached * MARGIN <= need.largest).all())
