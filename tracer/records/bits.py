"""Results about bits: comparisons, replays of kernels, fingerprints, and how functions add sums."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from tracer.records.columns import as_column
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result
from tracer.text import plural

SETTINGS = THREADS, BATCHES, RELEASE = "threads", "kernel by batch", "release of onnxruntime"
"""Causes that are the one setting in which two sides, or two machines, differ."""


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

    The others differ by `largest` at most, in absolute value, and by `ulps`; None of text, and
    where shapes or types differ. `classes` of `rows` have their largest element at another place;
    None of outputs that have no classes.
    """

    output: str = ""
    equal: int = 0
    size: int = 0
    largest: float | None = 0.0
    ulps: float | None = 0.0
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
        if not self.nodes:
            outputs = f"{plural(len(self.outputs), 'output')} of equal bits"
            found = outputs if self.is_equal else "outputs differ"
            return f"{found}; no node is compared, as none is the same on both sides"
        if self.is_equal:
            return f"all {self.nodes} nodes have equal bits" if self.nodes > 1 else "equal bits"
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


@dataclass(frozen=True, slots=True)
class ReplayedKernel:
    """One kernel on all inputs, each time fed the values that the runtime computed.

    `node` names the first of the `nodes` of the model that the kernel stands for, or the kernel
    where it stands for none. `equal` of its `size` results have equal bits; others differ by `ulps`
    at most, floats that lie between, infinite beside NaN. `rule` says how the kernel computes, ''
    where that is not known, and `reason` why. `ulps` is None where nothing could be compared.
    `tree` draws the order of additions of a sum of at most 32 terms.
    """

    node: str = field(metadata=as_column("node", 0))
    op_type: str = field(metadata=as_column("kernel", 1))
    equal: int
    size: int
    ulps: float | None = field(metadata=as_column("ulp", 2, "number"))
    rule: str
    reason: str
    nodes: tuple[str, ...]
    tree: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether all results have equal bits."""
        return self.equal == self.size and self.ulps is not None


@dataclass(frozen=True, slots=True)
class ReplayedOutput:
    """The SHA-256 of the bytes of an output on all inputs, of the runtime and of the replay.

    The session is that of the model itself, and the replay computed the graph by rules alone.
    `replayed` is None where it could not.
    """

    output: str
    sha256: str
    replayed: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Replayed(Result):
    """A model replayed with the arithmetic of a `runtime`, kernel by kernel, on `inputs` inputs.

    Of one node, there are the kernels that stand for it, and no outputs.
    """

    view: ClassVar[str] = "tracer.analyzers.views.bits"

    model: ModelInfo
    runtime: str
    settings: Mapping[str, Any]
    inputs: int
    kernels: tuple[ReplayedKernel, ...]
    outputs: tuple[ReplayedOutput, ...]
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> int:
        """The kernels whose results all have equal bits."""
        return sum(kernel.is_equal for kernel in self.kernels)

    def headline(self) -> str:
        """The model, and how many of its kernels have equal bits."""
        return f"{self.model.name}, {self.equal} of {plural(len(self.kernels), 'kernel')} equal"


class Recipe(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a value is made again: `sha256` is the digest of the result, `source` of what it is made.

    `block` channels of outputs are neighbours in memory, and `inner` channels of inputs; 1 of each
    only pads. `data` has the compressed bytes of a value without a source. Without either, the
    value is not known.
    """

    sha256: str
    dtype: str
    shape: tuple[int, ...]
    source: str = ""
    block: int = 1
    inner: int = 1
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ModelPrint:
    """What a machine computes for the model with the hash `sha256`, at these settings.

    Inputs of `shapes` are drawn from `seed`; `inputs` and `outputs` are their SHA-256. `graph` is
    the graph that runs, compressed, and `constants` its stored values. `nodes` has, for each node,
    the number of its rule, or the reason why none is known; `inner` those of nodes in bodies that
    ran, by outputs. `rules` are compressed JSON.
    """

    name: str
    sha256: str
    optimization: str
    threads: int
    seed: int
    shapes: dict[str, tuple[int, ...]]
    inputs: dict[str, str]
    outputs: dict[str, str]
    nodes: tuple[int | str, ...] = field(repr=False)
    rules: bytes = field(repr=False)
    constants: dict[str, Recipe] = field(repr=False)
    graph: bytes = field(repr=False)
    inner: tuple[tuple[tuple[str, ...], int | str], ...] = field(default=(), repr=False)

    @property
    def known_rules(self) -> int:
        """The number of kernels whose rule is known."""
        return sum(isinstance(each, int) for each in self.nodes)


@dataclass(frozen=True, slots=True, repr=False)
class Fingerprint(Result):
    """The arithmetic of a machine: its processor and versions, and what models compute there.

    `instructions` are those that its processor tells; `block` channels lie side by side in its
    convolutions.
    """

    view: ClassVar[str] = "tracer.analyzers.views.bits"

    format: int
    processor: str
    instructions: str
    onnxruntime: str
    packages: dict[str, str]
    block: int
    models: tuple[ModelPrint, ...]

    def headline(self) -> str:
        """The processor and the number of models."""
        return f"{self.machine}, {plural(len(self.models), 'model')}"

    @property
    def machine(self) -> str:
        """The machine in a few words."""
        return f"{self.processor} ({self.instructions}), onnxruntime {self.onnxruntime}"


@dataclass(frozen=True, slots=True, repr=False)
class Revealed(Result):
    """How a function of two vectors of `terms` numbers adds their products.

    `rule` says it in words; it is None if it is not known, and `reason` says what speaks against
    the rule that came closest. `spec` is the accumulator as `--accumulator` takes it, None for
    rules that no accumulator has. `facts` has the parts of the rule by name. `probes` are the calls
    with one pair of vectors; `vectors` are the random pairs among them that verified the rule.
    """

    view: ClassVar[str] = "tracer.analyzers.views.bits"

    function: str
    terms: int
    operands: str
    rule: str | None
    spec: str | None
    reason: str
    probes: int
    vectors: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    tree: str = ""

    @property
    def is_known(self) -> bool:
        """Whether a rule was found and verified."""
        return self.rule is not None

    def headline(self) -> str:
        """The function and its rule."""
        return f"{self.function}, {self.terms} terms: {self.spec or self.rule or 'not known'}"
