"""Layers of networks: how their sums are computed once more, and what a card computed."""

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.card import network, tile
from tests.card.torch_products import draw

LEAST = 0.98
"""The share of half-precision results that sums in another order leave as they are."""


def layer(module, given, form="fp16"):
    module = network.initialised(module, form)
    (found,) = network.run(nn.Sequential(module), given, form, "cpu")
    return found


def test_sums_of_layers_are_those_of_torch_in_double():
    kept, (given, weights, bias, _) = layer(nn.Conv2d(3, 8, 3, 2), (2, 3, 9, 9))
    want = functional.conv2d(*map(torch.from_numpy, (given, weights)), stride=2).double().numpy()
    for sums in (
        network.interpreted(kept, given, weights),
        *(network.conv_sums(kept, given, weights, pad) for pad in (1, 8, 16)),
    ):
        np.testing.assert_allclose(sums, want, rtol=1e-5, atol=1e-5)
    started = network.interpreted(kept, given, weights, bias)
    np.testing.assert_allclose(started, want + bias[:, None, None], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["fp16", "bf16"])
def test_layers_in_half_precision_round_nearly_all_sums_alike(form):
    kept, tensors = layer(nn.Linear(64, 32), (4, 64), form)
    found = network.shares(kept, *tensors)
    assert set(found) == {"interpret after", "interpret twice", "interpret start"}
    assert max(found.values()) >= LEAST
    assert found["interpret twice"] < LEAST  # sums are rounded once


def test_tensors_that_are_kept_are_those_of_the_layer():
    kept, (given, _, _, output) = layer(nn.Linear(16, 8), (2, 16), "bf16")
    np.testing.assert_array_equal(network.kept(kept, "given"), given)
    np.testing.assert_array_equal(network.kept(kept, "output"), output)
    assert (output.astype(ml_dtypes.bfloat16).astype(np.float32) == output).all()


def test_weights_are_the_same_everywhere():
    weights = network.initialised(nn.Linear(4, 2), "fp16").weight.detach().numpy()
    assert weights.tolist() == (draw(network._SEED, (2, 4), "fp16") / 2).tolist()


def _measured(card):
    return {
        name: layers for name, layers in card("network")["networks"].items()
        if isinstance(layers, list)
    }  # fmt: skip


def test_layers_on_the_card_have_the_bits_of_the_preset(card):
    """All networks, and nearly all results of every layer that took more than a few."""
    measured = _measured(card)
    assert len(measured) == 6
    for name, layers in measured.items():
        for each in layers:
            assert max(each["equal"].values()) >= LEAST, (name, each["name"], each["equal"])


def test_layers_on_the_card_are_computed_here_with_the_same_bits(card):
    modules = dict(network.initialised(network.networks()["lenet"][0], "fp16").named_modules())
    for each in _measured(card)["lenet fp16"]:
        module = modules[each["name"]]
        bias = None if module.bias is None else module.bias.detach().numpy()
        tensors = network.kept(each, "given"), module.weight.detach().numpy(), bias
        found = network.shares(each, *tensors, network.kept(each, "output"))
        assert found == pytest.approx(each["equal"], abs=0)


def test_the_function_of_a_tile_takes_rows_and_vectors():
    a, b = (draw(seed, (70, 8), "fp16") for seed in (1, 2))
    sums = tile.product(a, b)
    np.testing.assert_allclose(sums, np.sum(a.astype(float) * b, 1), rtol=2e-3, atol=2e-3)
    assert tile.product(a[3], b[3]) == sums[3]


def test_reveal_names_the_preset_of_a_function_on_the_card(card):
    found = card("network").get("revealed")
    if found is None or "error" in found:
        pytest.skip(f"reveal did not run on the card: {found}")
    assert "tc:h100" in (found["preset"] or "").split(", "), found
    assert found["operands"] == "fp16"
