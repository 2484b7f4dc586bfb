"""The definitions against what was published of them, and against the experiments."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from experiments import family
from models import families
from tests.examples import at_night

CONVOLUTIONS = {18: 20, 34: 36, 50: 36, 101: 70, 152: 104}  # experiment 2, plain blocks
SMALL = [(18, 20), (50, 36)]
EXPERIMENT_1 = {
    "Convolution2DFunction": 21,
    "BatchNormalization": 21,
    "ReLU": 19,
    "Add": 2,
    "AveragePooling2D": 1,
    "Reshape": 1,
    "LinearFunction": 1,
}


def torch_convolutions(model):
    import torch

    seen = []
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(lambda m, inputs, output: seen.append(m))
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, 32, 32))
    return seen


def chainer_functions(model, train):
    import chainer

    names = []

    class Names(chainer.FunctionHook):
        name = "Names"

        def forward_preprocess(self, function, in_data):
            names.append(function.__class__.__name__)

    with chainer.using_config("train", train), chainer.no_backprop_mode(), Names():
        model(np.zeros((1, 3, 32, 32), np.float32))
    return names


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("depth", "calls"), at_night(CONVOLUTIONS.items(), but=SMALL))
def test_plain_resnets_call_as_many_convolutions_as_experiment_2_saw(depth, calls):
    model = families.build("resnet_imagenet", "torch", {"depth": depth})
    assert len(torch_convolutions(model)) == calls


@pytest.mark.one_in(2)
@pytest.mark.needs("chainer")
@pytest.mark.parametrize(("depth", "calls"), at_night(CONVOLUTIONS.items(), but=SMALL))
def test_the_chainer_twins_own_as_many_convolutions(depth, calls):
    model = families.build("resnet_imagenet", "chainer", {"depth": depth})
    from chainer import links

    assert sum(isinstance(link, links.Convolution2D) for link in model.links()) == calls


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("depth", "parameters"), [(18, 11_689_512), (34, 21_797_672)])
def test_plain_18_and_34_have_the_published_number_of_parameters(depth, parameters):
    model = families.build("resnet_imagenet", "torch", {"depth": depth})
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.needs("torch")
def test_the_mnist_convnet_has_the_parameters_of_the_tutorial_network():
    model = families.build("mnist", "torch", {})
    assert sum(p.numel() for p in model.parameters()) == 1_199_882


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("depth", "calls"), at_night([(50, 53), (101, 104), (152, 155)], but=[(50, 53)])
)
def test_large_resnets_have_the_convolutions_of_the_published_ones(depth, calls):
    large, narrow = (
        families.build("resnet_imagenet", "torch", {"depth": depth, "kind": kind})
        for kind in ("large", "bottleneck")
    )
    assert len(torch_convolutions(large)) == calls
    assert len(torch_convolutions(narrow)) == calls - 1  # its first stage needs no projection
    for wide, slim in zip(large.stage3[1:], narrow.stage3[1:], strict=True):
        weights = [sum(p.numel() for p in b.parameters() if p.dim() == 4) for b in (wide, slim)]
        assert weights[0] == 4 * weights[1]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("network", at_night(family.CALLS, but=[*family.CALLS][:2]))
def test_resnets_call_relu_and_add_in_place_as_often_as_experiment_2_saw(network):
    import torch

    kind, depth = re.fullmatch(r"([a-z]+)(\d+)", network).groups()
    arguments = {"depth": int(depth), "kind": kind}
    model = families.build("resnet_imagenet", "torch", arguments).train()
    with torch.autograd.profiler.profile() as profile:
        model(torch.zeros(2, 3, 32, 32))
    calls = {each.key: each.count for each in profile.key_averages()}
    for operator, original in family.CALLS[network].items():
        assert calls[operator] == original
    assert "aten::add" not in calls


@pytest.mark.needs("chainer")
@pytest.mark.parametrize("train", [True, False])
def test_resnet_20_in_chainer_runs_the_66_functions_of_experiment_1(train):
    names = chainer_functions(families.build("resnet_cifar", "chainer", {}), train)
    assert len(names) == 66
    assert (names[0], names[65]) == ("Convolution2DFunction", "LinearFunction")
    # The experiment ran in Chainer's training mode, or the normalisation would be a fixed one.
    assert Counter(name.removeprefix("Fixed") for name in names) == EXPERIMENT_1
    assert ("BatchNormalization" in names) == train


@pytest.mark.needs("chainer")
def test_the_published_resnet_20_adds_in_every_block():
    model = families.build("resnet_cifar", "chainer", {"residual": "always"})
    assert Counter(chainer_functions(model, False))["Add"] == 9


@pytest.mark.parametrize(
    ("layer", "multiplications"),
    [("conv1", 352_800), ("conv2", 240_000), ("fc1", 48_000), ("fc2", 10_080), ("fc3", 840)],
)
def test_lenet_multiplies_as_often_as_in_experiment_5(layer, multiplications):
    import torch

    model = families.build("lenet", "torch", {})
    module = getattr(model, layer)
    sizes = []
    module.register_forward_hook(lambda m, inputs, output: sizes.append(output.numel()))
    model(torch.zeros(1, 3, 32, 32))
    assert sizes == [multiplications * len(module.weight) // module.weight.numel()]
    assert (module.bias is not None) == (layer == "fc3")
