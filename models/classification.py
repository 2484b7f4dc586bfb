"""Classify an image with an ONNX model."""

import json
from dataclasses import dataclass

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from models.training.product import LABELS_KEY
from tracer.errors import ModelError
from tracer.graph import provenance, tensor_type
from tracer.graph.model import Model
from tracer.inputs.datasets import images

TOP = 5


@dataclass(frozen=True, slots=True)
class Guess:
    """A class, its name, and its probability."""

    index: int
    label: str
    probability: float


def classify(model: Model, pixels: NDArray[np.generic], top: int = TOP) -> list[Guess]:
    """Returns the `top` most probable classes of an image [1, C, H, W], the best first.

    The image is resized to the model's input. Raises ModelError for a model that is no image
    classifier, InputError for an image that does not fit.
    """
    x = images.as_float(images.fit(pixels, _image_shape(model)))
    scores = _run(model, x)
    if scores.ndim != 2 or len(scores) != 1:
        raise ModelError(
            f"{model.name}: the first output has shape {scores.shape}, not [1, classes]",
            "Give an image classifier.",
        )
    probabilities = _softmax(scores[0].astype(np.float64))
    labels = _labels(model, len(probabilities))
    best = np.argsort(-probabilities, kind="stable")[:top]
    return [Guess(int(i), labels[i], float(probabilities[i])) for i in best]


def _image_shape(model: Model) -> tuple[int, int, int]:
    types = [tensor_type.from_type_proto(value.type) for value in model.inputs]
    only = types[0] if len(types) == 1 else None
    if only is None or only.dtype != "float32" or only.shape is None or len(only.shape) != 4:
        listed = ", ".join(str(kind) for kind in types) or "none"
        raise ModelError(
            f"{model.name}: its inputs ({listed}) are not one float32 image [N, C, H, W]",
            "Give an image classifier.",
        )
    channels, height, width = only.shape[1:]
    if not (isinstance(channels, int) and isinstance(height, int) and isinstance(width, int)):
        raise ModelError(f"{model.name}: takes images of any size ({only})", "Export a fixed size.")
    return channels, height, width


def _run(model: Model, x: NDArray[np.float32]) -> NDArray[np.generic]:
    assert model.path is not None
    session = onnxruntime.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {model.inputs[0].name: x})[0])


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns probabilities, also from log-probabilities."""
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum())


def _labels(model: Model, count: int) -> list[str]:
    """Returns the class names that the trainer stored in the model, else their numbers."""
    props = provenance.metadata(model.proto)
    try:
        names = json.loads(props.get(LABELS_KEY, "[]"))
    except ValueError:
        names = []
    fits = isinstance(names, list) and len(names) == count
    return [str(name) for name in names] if fits else [str(i) for i in range(count)]
