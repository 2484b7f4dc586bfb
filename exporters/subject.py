"""Opens whatever a user names as a model: a file, or code whose model is exported on the fly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from tracer.errors import UsageError
from tracer.exporters.source import names_code
from tracer.graph import loading, user_operators
from tracer.graph.model import Model


@dataclass(frozen=True, slots=True)
class Code:
    """The model that `name` names, as FILE.py:NAME or FILE.pt2, with the shapes of its inputs.

    The batch is first; None for the model's own `input_shape`. `input_dtype` is the element type of
    all inputs, or one for each. The model is called with `arguments` and filled with `weights`;
    nothing is unpickled without `trust`. `operators` is a file with operators of the user's own,
    also for a file of ONNX.
    """

    name: str
    input_shape: Sequence[Sequence[int]] | None = None
    input_dtype: str | Sequence[str] = "float32"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None
    trust: bool = False
    operators: Path | None = None

    def __str__(self) -> str:
        """Returns the name."""
        return self.name


ModelSource: TypeAlias = "loading.OnnxSource | Code"
"""What a user names as a model."""


def open_subject(subject: ModelSource) -> Model:
    """Returns the model that a user named: a Model, a file, or code, which is then run.

    Raises UsageError for what a file of ONNX has itself, and the errors of `loading.open_model` and
    `cached_export.exported`.
    """
    if isinstance(subject, str | Path):
        subject = Code(str(subject))
    if not isinstance(subject, Code):
        return loading.open_model(subject)
    if subject.operators is not None:
        own = user_operators.load(subject.operators)
        return replace(open_subject(replace(subject, operators=None)), operators=own)
    if names_code(subject.name):
        from tracer.exporters.pipeline import (
            cached_export,  # imports onnxruntime, which counting spares
        )

        return cached_export(subject)
    if subject.input_shape is not None:
        raise UsageError(
            f"{subject.name}: an ONNX model declares the shapes of its inputs",
            "Size what it leaves open: --dim x:2=48.",
        )
    if subject != Code(subject.name):
        raise UsageError(
            f"{subject.name} is an ONNX model, not code",
            "--arg, --weights, --input-dtype and --trust are for FILE.py:NAME.",
        )
    return loading.open_model(subject.name)
