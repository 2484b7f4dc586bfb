"""Opens whatever a user names as a model: a file, or code whose model is exported on the fly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from exporters.source import names_code
from tracer.errors import UsageError
from tracer.graph import loading
from tracer.graph.model import Model


@dataclass(frozen=True, slots=True)
class Code:
    """The model that `name` names, as FILE.py:NAME or FILE.pt2, with the shapes of its inputs.

    The batch is first; None for the model's own `input_shape`. `input_dtype` is the element type of
    all inputs, or one for each.
    """

    name: str
    input_shape: Sequence[Sequence[int]] | None = None
    input_dtype: str | Sequence[str] = "float32"

    def __str__(self) -> str:
        """Returns the name."""
        return self.name


Subject: TypeAlias = "loading.ModelSource | Code"
"""What a user names as a model."""


def open_subject(subject: Subject) -> Model:
    """Returns the model that a user named: a Model, a file, or code, which is then run.

    Raises UsageError for shapes of a model that declares its own, and the errors of
    `loading.open_model` and `cached_export.exported`.
    """
    if isinstance(subject, str | Path):
        subject = Code(str(subject))
    if not isinstance(subject, Code):
        return loading.open_model(subject)
    if names_code(subject.name):
        from exporters.cached_export import exported  # imports onnxruntime, which counting spares

        return exported(subject.name, subject.input_shape, subject.input_dtype)
    if subject.input_shape is not None:
        raise UsageError(
            f"{subject.name}: an ONNX model declares the shapes of its inputs",
            "Size what it leaves open: --dim x:2=48.",
        )
    return loading.open_model(subject.name)
