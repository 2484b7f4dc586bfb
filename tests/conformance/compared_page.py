"""Shapes and values compared with onnxruntime: a part of the page, and the cases behind it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import onnxruntime

from tests.conformance import shapes, suite
from tests.conformance.differences import DIFFERENCES, UNKNOWN
from tests.conformance.operators import Key
from tests.conformance.shapes import Comparison

TITLE = "## Shapes and values compared with onnxruntime\n"
HEAD = """
Every version of every operator that onnxruntime {ort} and the interpreter both run, with edge
values of attributes, of stored shapes, axes, pads and scales, and of sizes (0 and 1 as well), at
the first and at the last opset of the version; operators of `com.microsoft` with cases of their
own. {compared:,} cases are compared: the shape that `tracer count` infers without a run, the shape
of the run, and that of onnxruntime; then the values, to 1/1000 of each, or 1/100,000 of the
largest (1/100 and 1/1000 for floats of 16 bits). All shapes are equal in {shapes:,} cases, and the
values as well in {values:,}. `python -m tests.conformance.shapes --all` compares about five times
as many cases, `--all --mutants 20` more.

*Not in onnxruntime* are the opsets whose version of the operator it does not run, or not with
these types. The difference is the largest of the cases with equal values, relative to the largest
value of the tensor, rounded up to a power of ten.

These operators differ from onnxruntime, in as many cases as the number in brackets; those without
a number differ in longer runs alone. Of {run} cases in which nothing is refused, {agreeing} have
the values of ONNX's reference.

{differences}

The shapes of these outputs are unknown before a run:

{unknown}

"""
TABLE = """<details><summary>{domain}: {count} operators</summary>

| operator | opsets | not in onnxruntime | cases | shapes equal | values equal | difference |
|---|---|---|---|---|---|---|
{rows}
</details>
"""


def section() -> str:
    """The part of the page; it runs all cases of the sample."""
    by_operator: dict[tuple[str, str], dict[Key, Sequence[Comparison]]] = defaultdict(dict)
    for key, cases in shapes.sample().items():
        by_operator[key[:2]][key] = cases
    every = [each for cases in shapes.sample().values() for each in cases]
    differing = [each for each in every if each.value_difference]
    run = [each for each in differing if not isinstance(each.ours, str)]
    head = HEAD.format(
        ort=onnxruntime.__version__, compared=len(every),
        shapes=sum(not each.shape_difference for each in every),
        values=sum(not each.value_difference for each in every),
        differences=_explained(DIFFERENCES, differing),
        run=len(run), agreeing=sum(each.reference_agrees for each in run),
        unknown=_explained(UNKNOWN, [each for each in every if each.unknown]),
    )  # fmt: skip
    tables = []
    for domain in sorted({domain for domain, _ in by_operator}):
        rows = [
            _row(of) for (own, _), of in by_operator.items() if own == domain and any(of.values())
        ]
        if rows:
            tables.append(TABLE.format(
                domain=domain or "ai.onnx", count=len(rows), rows="\n".join(rows)))  # fmt: skip
    return TITLE + head + "\n".join(tables)


def _explained(reasons: Mapping[str, str], cases: Iterable[Comparison]) -> str:
    """A line for each reason, with the operators that have it and their number of cases."""
    counts = Counter(each.key[1] for each in cases)
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in reasons.items():
        names[reason].append(f"{name} ({counts[name]})" if counts[name] else name)
    return "\n".join(f"- {', '.join(of)}: {reason}" for reason, of in names.items())


def _row(versions: Mapping[Key, Sequence[Comparison]]) -> str:
    _, name, _ = next(iter(versions))
    cases = [each for of in versions.values() for each in of]
    same = [each for each in cases if not each.value_difference]
    run = _ranges(key for key, of in versions.items() if of)
    missing = _ranges(key for key, of in versions.items() if not of)
    alike = sum(not each.shape_difference for each in cases)
    worst = max((each.error for each in same), default=0.0)
    error = f"{suite.power_of_ten(worst):.0e}" if worst else "none"
    return f"| {name} | {run} | {missing} | {len(cases)} | {alike} | {len(same)} | {error} |"


def _ranges(keys: Iterable[Key]) -> str:
    """The opsets of some versions: those that follow each other are one range."""
    ranges: list[list[int]] = []
    for key in keys:
        last = shapes.last_opset(key)
        if ranges and ranges[-1][1] + 1 == key[2]:
            ranges[-1][1] = last
        else:
            ranges.append([key[2], last])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
