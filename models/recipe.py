"""What a family is called, what it takes and how it is trained unless the user says otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a family is trained, with Adam and softmax cross-entropy.

    `model` is the class in the family's `<framework>_net.py`; `input_shape` is (channels, height,
    width); `shipped` is the stem of the trained .onnx in the folder, '' where none is shipped.
    """

    model: str
    input_shape: tuple[int, int, int]
    epochs: int
    batch: int
    lr: float
    shipped: str = ""
