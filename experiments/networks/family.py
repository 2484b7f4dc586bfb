"""The ResNets for large images, each with a name for `tracer compare`.

`tracer compare experiments/networks/family.py:plain18@torch …:bottleneck18@torch --by model`
"""

from functools import partial

from models.resnet_imagenet.torch_net import ImageNetResNet


def network(depth: int, kind: str, size: int = 224) -> ImageNetResNet:
    """Returns one of the family, for images of `size` by `size` pixels."""
    model = ImageNetResNet(depth, kind)
    model.input_shape = (3, size, size)
    return model


plain18 = partial(network, 18, "plain")
plain34 = partial(network, 34, "plain")
plain50 = partial(network, 50, "plain")
plain101 = partial(network, 101, "plain")
plain152 = partial(network, 152, "plain")
bottleneck18 = partial(network, 18, "bottleneck")
bottleneck34 = partial(network, 34, "bottleneck")
bottleneck50 = partial(network, 50, "bottleneck")
bottleneck101 = partial(network, 101, "bottleneck")
bottleneck152 = partial(network, 152, "bottleneck")
large50 = partial(network, 50, "large")
large101 = partial(network, 101, "large")
large152 = partial(network, 152, "large")
