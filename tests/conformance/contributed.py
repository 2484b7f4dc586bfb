"""Cases of onnxruntime's own operators: those whose inferred shapes are held against a run."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.operators import Key, computed_by
from tests.conformance.trial import Trial
from tests.interpreter.models import fused
from tests.tracer.shapes.test_fused_shapes import CASES, UNSTORED

DOMAIN = "com.microsoft"


def operators() -> list[Key]:
    """The operators that have a case and are computed here; all are of version 1."""
    keys = [(DOMAIN, name, 1) for name in sorted({case[0] for case in CASES.values()})]
    return [key for key in keys if computed_by(key)]


def trials(operator: str) -> Iterator[Trial]:
    """The cases of an operator, with its parameters stored in the model."""
    for title, (name, feeds, outputs, attributes) in CASES.items():
        if name == operator:
            given = {each: value for each, value in feeds.items() if value is not None}
            stored = [each for each in given if each not in UNSTORED and "past" not in each]
            model = fused(name, feeds, outputs, stored, **attributes)
            fed = {each: value for each, value in given.items() if each not in stored}
            yield Trial(title, model, fed)
