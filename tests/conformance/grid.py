"""What every operator version that ONNX's suite has no case for is held against.

Each case of another version is rewritten for this version. onnxruntime tells the values, at this
very opset. Where it has no kernel for the version, or cannot take the type, the values of the other
version count, if the case means the same there. `written` adds what the suite lacks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
from onnx.backend.test.case.test_case import TestCase

from tests.conformance import suite, written, written_cases, written_ml_cases
from tests.conformance.exclusions import DISTRUSTED, EXCLUSIONS
from tests.conformance.older import UnsuitableError, older
from tests.conformance.operators import Key, operators
from tests.conformance.trial import Trial
from tracer.errors import ModelError

ONNXRUNTIME = "onnxruntime"
_TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}


@dataclass(frozen=True)
class Outcome:
    """What tracer gives for a trial, and what the oracle gives."""

    trial: Trial
    oracle: str
    ours: list[Any]
    theirs: list[Any]

    def check(self) -> None:
        """Raises AssertionError where they differ in kind, type, shape or value."""
        suite.assert_similar(self.ours, self.theirs, **_TOLERANCE)

    @property
    def error(self) -> float:
        """The largest difference, relative to the largest value of its tensor."""
        return max(map(suite.error, self.ours, self.theirs), default=0.0)


UNSUITABLE = (
    UnsuitableError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError,
)  # fmt: skip


def without_cases() -> list[Key]:
    """The operator versions that no passing case of the suite is for."""
    held = {suite.key_of(case) for case in _passing_cases()}
    return [key for key in operators() if key not in held]


@cache
def outcomes(key: Key) -> list[Outcome]:
    """Runs every trial of a version that has an oracle."""
    return [outcome for trial in trials(key) if (outcome := _outcome(trial))]


def oracle_of(key: Key) -> str:
    """The oracle of a version: onnxruntime if any trial has it; '' for none."""
    oracles = sorted({outcome.oracle for outcome in outcomes(key)}, key=_preference)
    return oracles[0] if oracles else ""


def _preference(oracle: str) -> tuple[bool, int, str]:
    """onnxruntime first, then the highest number, then by name."""
    number = 0 if oracle == ONNXRUNTIME else int(oracle.rpartition(" ")[2])
    return oracle != ONNXRUNTIME, -number, oracle


def _outcome(trial: Trial) -> Outcome | None:
    theirs = None if (trial.operator, trial.name) in DISTRUSTED else trial.by_onnxruntime()
    oracle = ONNXRUNTIME
    if theirs is None:
        theirs, oracle = trial.expected, trial.source
    if theirs is None:
        return None
    try:
        made = trial.by_tracer()
    except ModelError:
        if oracle == ONNXRUNTIME or trial.by_onnxruntime() is not None:
            raise
        return None  # a version that does not have these types, as onnxruntime finds too
    ours = [suite.stored(a, b) for a, b in zip(made, theirs, strict=True)]
    return Outcome(trial, oracle, ours, theirs)


def trials(key: Key) -> Iterator[Trial]:
    for source, cases in _cases().items():
        if source[:2] == key[:2]:
            for case in cases:
                try:
                    trial = older(case, key)
                    # onnx says which types this version has no more, or not yet
                    onnx.shape_inference.infer_shapes(trial.model, check_type=True)
                except UNSUITABLE:
                    continue
                yield trial
    cases = written_ml_cases.CASES if key[0] else written_cases.CASES
    yield from written.trials(key, cases.get(key[1], []))


@cache
def _cases() -> Mapping[Key, list[TestCase]]:
    """The suite's passing cases of single nodes, by operator version."""
    cases = defaultdict(list)
    for case in _passing_cases():
        if len(case.model.graph.node) == 1:
            cases[suite.key_of(case)].append(case)
    return cases


def _passing_cases() -> list[TestCase]:
    return [
        case
        for case in suite.node_cases()
        if not case.name.endswith("_expanded") and case.name not in EXCLUSIONS
    ]
