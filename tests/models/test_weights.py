from __future__ import annotations

import numpy as np
import pytest

from models import families, weights
from tracer.errors import InputError

pytestmark = pytest.mark.needs("torch", "chainer")

TWINS = [
    ("lenet", {}, (3, 32, 32)),
    ("resnet_cifar", {}, (3, 32, 32)),
    ("resnet_cifar", {"residual": "always", "depth": 32}, (3, 32, 32)),
    ("resnet_imagenet", {"depth": 34}, (3, 64, 64)),
    ("resnet_imagenet", {"depth": 50, "kind": "bottleneck"}, (3, 64, 64)),
    ("resnet_imagenet", {"depth": 18, "kind": "large"}, (3, 64, 64)),
]


def disturbed(model, seed):
    """Statistics and scales that are not those of a beginner, so that a mix-up shows."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if name.endswith(("running_mean", "bias")):
            tensor.normal_(0, 0.1, generator=rng)
        elif tensor.dim() == 1:
            tensor.uniform_(0.8, 1.2, generator=rng)
    return model


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("family", "arguments", "shape"), TWINS)
def test_twins_with_the_same_weights_compute_the_same(family, arguments, shape, framework_outputs):
    source = disturbed(families.build(family, "torch", arguments), 1)
    chain = families.build(family, "chainer", arguments)
    back = families.build(family, "torch", arguments)
    weights.copy_to_chainer(source, chain)
    weights.copy_to_torch(chain, back)
    x = np.random.default_rng(0).random((2, *shape), np.float32)
    expected = framework_outputs(source, x)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(framework_outputs(chain, x) / scale, expected / scale, atol=1e-5)
    np.testing.assert_array_equal(framework_outputs(back, x), expected)


def test_names_of_both_frameworks_are_translated_there_and_back():
    source = families.build("resnet_cifar", "torch", {"depth": 8})
    state = {name: tensor.numpy() for name, tensor in source.state_dict().items()}
    arrays = weights.to_chainer(state)
    chain = families.build("resnet_cifar", "chainer", {"depth": 8})
    assert set(arrays) == set(weights.chainer_arrays(chain))
    assert set(weights.to_torch(arrays)) == set(state)


def test_weights_of_another_depth_are_refused_with_names_and_shapes():
    source = families.build("resnet_cifar", "torch", {"depth": 14})
    target = families.build("resnet_cifar", "chainer", {"depth": 8})
    with pytest.raises(
        InputError, match=r"source has stage1/1/conv1/W \(16, 16, 3, 3\).*target needs nothing"
    ):
        weights.copy_to_chainer(source, target)


def test_weights_of_another_number_of_classes_are_refused_both_ways():
    source = families.build("lenet", "chainer", {"classes": 4})
    target = families.build("lenet", "torch", {"classes": 3})
    with pytest.raises(
        InputError, match=r"fc3.weight \(4, 84\).*target needs .*fc3.weight \(3, 84\)"
    ):
        weights.copy_to_torch(source, target)


def test_a_layer_chainer_has_no_twin_of_is_named():
    transformer = families.build("transformer", "torch", {"layers": 1})
    state = {name: tensor.numpy() for name, tensor in transformer.state_dict().items()}
    with pytest.raises(InputError, match=r"'positions' \(1, 16, 64\) has no Chainer name"):
        weights.to_chainer(state)
    with pytest.raises(InputError, match=r"'embed/table' \(2,\) has no torch name"):
        weights.to_torch({"embed/table": np.zeros(2)})
