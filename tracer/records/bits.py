"""What a comparison of bits finds: the first node that differs, its cause, and how far it goes."""

from dataclasses import dataclass
from typing import ClassVar

from tracer.records.result import Result
from tracer.text import plural

SETTINGS = THREADS, BATCHES = "threads", "kernel by batch"
"""Causes that are the one setting in which two sides differ."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first node, in the order of side A, whose bits differ; it is number `place` from 0.

    `equal` of `size` results have equal bits; the others differ by `ulps` at most, units in the
    last place. `causes` are what explains it, proven by the replay; with `together`, only all of
    them do. Without any, `reason` says why. `here` and `there` are the rules of both sides.
    """

    node: str
    op_type: str
    place: int
    equal: int
    size: int
    ulps: float
    causes: tuple[str, ...]
    together: bool
    reason: str
    here: str
    there: str

    @property
    def cause(self) -> str:
        """The causes in words; of a setting, what it changes. "" if none is known."""
        setting, *facts = self.causes or ("",)
        if setting in SETTINGS and facts:
            return f"{setting}: {' and '.join(facts)}"
        return " and ".join(self.causes)


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How an output of the model differs: `equal` of `size` results have equal bits.

    The others differ by `largest` at most, in absolute value. `classes` of `rows` have their
    largest element at another place; None of outputs that have no classes.
    """

    output: str = ""
    equal: int = 0
    size: int = 0
    largest: float = 0.0
    ulps: float = 0.0
    rows: int | None = None
    classes: int | None = None


@dataclass(frozen=True, slots=True)
class SideBits:
    """The bits of a side against those of A: of `nodes` nodes that both have.

    `exact` says whether the replay of another machine has the SHA-256 of the outputs there; None
    of a side that ran here. Where it has not, `reason` says why, and nothing else is known.
    """

    side: str
    nodes: int
    first: FirstDifference | None
    outputs: tuple[OutputDifference, ...]
    exact: bool | None = None
    reason: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether all nodes and outputs have equal bits."""
        return self.first is None and all(each.equal == each.size for each in self.outputs)

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        if self.exact is False:
            return f"not known: the replay has other outputs than the other machine ({self.reason})"
        if self.is_equal:
            return f"all {plural(self.nodes, 'node')} have equal bits"
        if self.first is None:
            return "outputs differ, and no node that both sides have"
        first = self.first
        cause = first.cause or f"not known ({first.reason})"
        shown = " (only together)" if first.together else ""
        return f"first difference: {first.node} ({first.op_type}); cause: {cause}{shown}"


@dataclass(frozen=True, slots=True, repr=False)
class BitComparison(Result):
    """The bits of several sides against those of side A, `reference`."""

    view: ClassVar[str] = "tracer.analyzers.views.bits"

    reference: str
    sides: tuple[SideBits, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether all sides have the bits of A."""
        return all(side.is_equal and side.exact is not False for side in self.sides)

    def headline(self) -> str:
        """The sides, and whether their bits are equal."""
        equal = sum(side.is_equal for side in self.sides)
        return f"{self.reference}, {equal} of {plural(len(self.sides), 'side')} with equal bits"
