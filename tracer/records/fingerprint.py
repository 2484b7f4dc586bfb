"""The fingerprint of a machine: what its onnxruntime computes, as plain data."""

from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from tracer.records.result import Result
from tracer.text import plural


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
    the number of its rule, or the reason why none is known. `rules` are compressed JSON.
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

    view: ClassVar[str] = "tracer.analyzers.views.fingerprint"

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
