"""The model families: name, input shape and default training of each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """The default training of a family, with Adam and softmax cross-entropy.

    `model` is the class in the family's `<framework>_net.py`; `input_shape` is (channels, height,
    width) of images, or (bytes,) of the windows of a text; `shipped` is the stem of the trained
    .onnx in the family's folder, '' without one.
    """

    model: str
    input_shape: tuple[int, ...]
    epochs: int
    batch: int
    lr: float
    shipped: str = ""
    data: str = "digits"


RECIPES = {
    "gpt": Recipe("Gpt", (256,), epochs=6, batch=8, lr=1.5e-3, shipped="gpt", data="kjv"),
    "lenet": Recipe("LeNet", (3, 32, 32), epochs=30, batch=32, lr=2e-3, shipped="lenet"),
    "llama": Recipe("Llama", (256,), epochs=3, batch=8, lr=2e-3, shipped="llama", data="kjv"),
    "mnist": Recipe("MnistNet", (1, 28, 28), epochs=10, batch=64, lr=1e-3),
    "resnet_cifar": Recipe(
        "CifarResNet", (3, 32, 32), epochs=12, batch=64, lr=5e-4, shipped="resnet20"
    ),
    "resnet_imagenet": Recipe("ImageNetResNet", (3, 224, 224), epochs=10, batch=32, lr=1e-3),
    "transformer": Recipe(
        "PatchTransformer", (3, 32, 32), epochs=40, batch=64, lr=5e-4, shipped="transformer"
    ),
}
