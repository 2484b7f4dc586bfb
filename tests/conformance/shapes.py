"""Shapes and values of every operator version: inferred, interpreted, and of onnxruntime.

Each version is tried at its first and at its last opset with the cases that `grid` has for it, and
with mutants of these by `edges`. Operators of onnxruntime have the cases of `contributed`.
`python -m tests.conformance.shapes` prints the differences of the sample that the page shows,
`--all` those of all cases with more mutants.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx

from tests.conformance import contributed, edges, grid, suite
from tests.conformance.differences import DIFFERENCES, UNKNOWN
from tests.conformance.operators import Key, operators
from tests.conformance.trial import Trial
from tracer.errors import ModelError
from tracer.graph import loading
from tracer.shapes import infer

NEWEST = 26
"""The newest opset of onnxruntime 1.31."""

_RTOL = 1e-3
_ATOL = 1e-5
"""The tolerance of values: of the value, and of the largest value of its tensor."""

_COARSE = {2: 1e-2, 1: 1e-1}
"""The tolerance of a value by the bytes of its type, if it has fewer than four."""

SAMPLE, ALL = (2, 3), (1000, 5)
"""Cases of a version, and mutants of each: those of the page, and those of a longer run."""

_WIDTH = 400
_SECONDS = 10
"""Processor time after which onnxruntime is stopped."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """A trial with the results of all three; `ours` is the refusal where the interpreter refuses.

    `inferred` are the shapes of the outputs without a run, None where one is unknown.
    """

    key: Key
    trial: Trial
    inferred: list[Shape | None]
    ours: list[Any] | str
    theirs: list[Any]

    @property
    def opset(self) -> int:
        """The opset of the operator's domain."""
        imports = {each.domain: each.version for each in self.trial.model.opset_import}
        return imports.get(self.key[0], self.key[2])

    @property
    def unknown(self) -> bool:
        """Whether the shape of a tensor is not inferred."""
        return not isinstance(self.ours, str) and any(
            isinstance(value, np.ndarray) and shape is None
            for shape, value in zip(self.inferred, self.theirs, strict=True)
        )

    @property
    def shape_difference(self) -> str:
        """What differs in kind or shape; '' for nothing."""
        if isinstance(self.ours, str):
            return self.ours
        ours, theirs = list(map(_form, self.ours)), list(map(_form, self.theirs))
        if ours != theirs:
            return f"interpreted {ours}, onnxruntime {theirs}"
        wrong = [
            f"inferred {shape}, run {form}"
            for shape, form in zip(self.inferred, theirs, strict=False)
            if shape is not None and shape != form
        ]
        return "; ".join(wrong)

    @property
    def value_difference(self) -> str:
        """What differs in type or value, beyond the tolerance; '' for nothing."""
        if self.shape_difference:
            return "shapes differ"
        for ours, theirs in zip(self.ours, self.theirs, strict=True):
            try:
                suite.assert_similar(suite.stored(ours, theirs), theirs, *_tolerance(theirs))
            except (AssertionError, TypeError) as error:
                return " ".join(str(error).split())
        return ""

    @property
    def is_unexplained(self) -> bool:
        """Whether nothing tells why results differ, or why a shape is unknown before the run."""
        differs = self.value_difference and self.key[1] not in DIFFERENCES
        return bool(differs or (self.unknown and self.key[1] not in UNKNOWN))

    @property
    def reference_agrees(self) -> bool:
        """Whether ONNX's reference gives what the interpreter gives."""
        theirs = self.trial.by_reference()
        return (
            theirs is not None
            and not Comparison(self.key, self.trial, [], self.ours, theirs).value_difference
        )

    @property
    def error(self) -> float:
        """The largest difference, relative to the largest value of its tensor."""
        stored = map(suite.stored, self.ours, self.theirs)
        return max(map(suite.error, stored, self.theirs), default=0.0)


class Apart:
    """Runs onnxruntime in another process: some models make it end the process, or never end."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self._pool = self._started()

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def values(self, trials: Sequence[Trial]) -> list[list[Any] | None]:
        """The outputs of onnxruntime for each trial; None where it refuses it, or ends."""
        try:
            return self._pool.submit(_run, trials).result()
        except BrokenProcessPool:
            self._pool = self._started()
        if len(trials) > 1:
            return [value for trial in trials for value in self.values([trial])]
        self.ended.append(trials[0].name)
        return [None]

    @staticmethod
    def _started() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("forkserver"))


def versions() -> list[Key]:
    """The versions of operators of ONNX and of onnxruntime that have trials."""
    return [*operators(), *contributed.operators()]


@cache
def sample() -> Mapping[Key, Sequence[Comparison]]:
    """The cases of the page by version; those that onnxruntime does not run have an empty list."""
    with Apart() as apart:
        return {key: list(comparisons(key, *SAMPLE, apart)) for key in versions()}


def comparisons(key: Key, cases: int, mutants: int, apart: Apart) -> Iterator[Comparison]:
    """Compares up to `cases` cases of a version and mutants of each, where onnxruntime runs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # edge values divide by zero and overflow
        trials = list(_trials(key, cases, mutants))
        for trial, theirs in zip(trials, apart.values(trials), strict=True):
            if theirs is not None:
                yield _compared(key, trial, theirs)


def _trials(key: Key, cases: int, mutants: int) -> Iterator[Trial]:
    if key[0] == contributed.DOMAIN:
        yield from contributed.trials(key[1])
        return
    whole = [edges.stored(trial) for trial in grid.trials(key)]
    last = last_opset(key)
    for trial in whole[:: -(-len(whole) // cases) or 1]:
        yield trial
        for number, mutant in enumerate(edges.mutants(trial, key, mutants)):
            yield _at_opset(mutant, key[0], last) if number % 2 == 0 else mutant


def last_opset(key: Key) -> int:
    """The last opset that has the version, of those that onnxruntime has."""
    if key[0]:
        return key[2]
    return min((since for since in _versions(key[1]) if since > key[2]), default=NEWEST + 1) - 1


@cache
def _versions(name: str) -> list[int]:
    """The versions of an operator of ONNX's own domain, deprecated ones as well."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return [each.since_version for each in schemas if (each.domain, each.name) == ("", name)]


def _at_opset(trial: Trial, domain: str, opset: int) -> Trial:
    """The same trial at another opset, if all its nodes are of one operator."""
    if domain or len({node.op_type for node in trial.model.graph.node}) > 1:
        return trial
    model = onnx.ModelProto()
    model.CopyFrom(trial.model)
    for each in model.opset_import:
        if not each.domain:
            each.version = opset
    return Trial(trial.name, model, trial.feeds)


def _run(trials: Sequence[Trial]) -> list[list[Any] | None]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + _SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [trial.by_onnxruntime() for trial in trials]


def _compared(key: Key, trial: Trial, theirs: list[Any]) -> Comparison:
    try:
        return Comparison(key, trial, _inferred(trial), trial.by_tracer(), theirs)
    except ModelError as error:
        return Comparison(key, trial, [None] * len(theirs), f"refused: {error}", theirs)


def _inferred(trial: Trial) -> list[Shape | None]:
    """The shapes of the outputs by `tracer.shapes`, as `tracer count` infers them."""
    model = loading.from_proto(trial.model)
    fed = {name: value for name, value in trial.feeds.items() if isinstance(value, np.ndarray)}
    types = infer(model, {name: value.shape for name, value in fed.items()})
    kinds = [types.of(each.name, model.nodes[0].scope) for each in model.proto.graph.output]
    return [None if kind is None else kind.concrete for kind in kinds]


def _form(value: Any) -> Any:
    """The shape of a tensor, the shapes of a sequence, or the name of another kind."""
    if isinstance(value, np.ndarray):
        return value.shape
    return list(map(_form, value)) if isinstance(value, list) else type(value).__name__


def _tolerance(theirs: Any) -> tuple[float, float]:
    """The relative and the absolute tolerance of a tensor of floats; else none matters."""
    if not isinstance(theirs, np.ndarray) or theirs.dtype.kind not in "fcV":
        return _RTOL, _ATOL
    with np.errstate(all="ignore"):
        sizes = np.abs(theirs.astype(np.float64))
    largest = float(sizes[np.isfinite(sizes)].max(initial=0.0))
    coarse = _COARSE.get(theirs.dtype.itemsize, 0.0)
    return max(_RTOL, coarse), max(_ATOL, coarse / 10) * (largest or 1.0)


def main() -> int:
    """Prints every difference; returns 1 if one is not explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.shapes")
    parser.add_argument("--all", action="store_true", help="all cases, and 5 mutants of each")
    parser.add_argument("--mutants", type=int, help="mutants of each case")
    parser.add_argument("names", nargs="*", help="operators; all by default")
    arguments = parser.parse_args()
    compared = unexplained = 0
    cases, mutants = ALL if arguments.all else SAMPLE
    mutants = mutants if arguments.mutants is None else arguments.mutants
    with Apart() as apart:
        for key in versions():
            if arguments.names and key[1] not in arguments.names:
                continue
            for each in comparisons(key, cases, mutants, apart):
                compared += 1
                unexplained += each.is_unexplained
                sys.stdout.write(_told(each))
    ended = "".join(f"onnxruntime ended the process: {name}\n" for name in apart.ended)
    sys.stdout.write(f"{ended}{compared} cases compared, {unexplained} not explained\n")
    return bool(unexplained)


def _told(each: Comparison) -> str:
    """A line for each way in which a case differs."""
    unknown = f"{each.inferred}, run {list(map(_form, each.theirs))}" if each.unknown else ""
    values = "" if each.shape_difference else each.value_difference
    ways = {"shape": each.shape_difference, "unknown": unknown, "value": values}
    lines = [
        f"{way} {each.key[1]} {each.opset} {each.trial.name}: {text}"[:_WIDTH]
        for way, text in ways.items()
        if text
    ]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
