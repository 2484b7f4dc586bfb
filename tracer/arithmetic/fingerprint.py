"""The fingerprint of a machine: what its onnxruntime computes, to be replayed on another machine.

It has, for each model, the graph that runs there and the rules of its kernels. Weights are not in
it: they are told by what they follow from in the model, see `tracer.arithmetic.recipes`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError

from tracer.arithmetic import layouts, recipes, runs
from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.recipes import Pool
from tracer.arithmetic.rule import NotKnown, Rule
from tracer.arithmetic.runs import RuleOf, SavedGraph
from tracer.errors import InputError
from tracer.executors.settings import OrtSettings
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds, random_arrays
from tracer.interpreter.compiled_code import loaded
from tracer.records import environment
from tracer.records.fingerprint import Fingerprint, ModelPrint
from tracer.support.types import Array

FORMAT = 2
LOWER_LEVELS = ("none", "basic", "extended")
_MOST_BYTES = 1 << 28
"""Bytes of a graph without its weights; more is no graph of tracer."""
_AGAIN = "Make it anew on the other machine: tracer fingerprint MODEL.onnx -o cpu.json."


def observe(models: tuple[ModelPrint, ...]) -> Fingerprint:
    """Returns the fingerprint of this machine with these models."""
    return Fingerprint(
        FORMAT, environment.cpu_model(), loaded("machine_code").instruction_set(), ort.__version__,
        dict(environment.versions()), layouts.block_size(), models,
    )  # fmt: skip


def take(
    model: Model, settings: OrtSettings, feeds: Feeds, seed: int, rule_of: RuleOf, until: float
) -> ModelPrint:
    """Returns what this machine computes for a model, on inputs that were drawn from `seed`.

    Kernels whose rule is not found by the time `until`, of `time.monotonic`, are not known. Raises
    the errors of `SavedGraph.of`.
    """
    graph = SavedGraph.of(model, settings)
    pool = pool_of(model, settings)
    values = graph.runner()(feeds)
    rules: dict[bytes, int] = {}
    nodes: list[int | str] = []
    for node in graph.nodes:
        try:
            kernel = graph.kernel(node, values)
            if time.monotonic() > until:
                raise NotKnown("the time was up")
            rule = msgspec.json.encode(rule_of(kernel))
            nodes.append(rules.setdefault(rule, len(rules)))
        except NotKnown as reason:
            nodes.append(str(reason))
    bare = onnx.ModelProto()
    bare.CopyFrom(graph.proto)
    del bare.graph.initializer[:]
    return ModelPrint(
        Path(model.name).name, model.sha256, settings.optimization, settings.threads, seed,
        {name: value.shape for name, value in feeds.items()}, digests(feeds),
        digests(runs.outputs_of(model, settings)(feeds)), tuple(nodes),
        zlib.compress(b"[" + b",".join(rules) + b"]", 9),
        {name: recipes.describe(value, pool) for name, value in graph.constants.items()},
        zlib.compress(bare.SerializeToString(), 9),
    )  # fmt: skip


def pool_of(model: Model, settings: OrtSettings) -> Pool:
    """Returns the values that recipes begin with: those of the graphs at lower levels."""
    lower = (
        SavedGraph.of(model, OrtSettings(optimization=level, threads=settings.threads))
        for level in LOWER_LEVELS
    )
    return recipes.pool_of(value for graph in lower for value in graph.constants.values())


def settings_of(print_: ModelPrint) -> OrtSettings:
    """Returns how onnxruntime ran the model of a fingerprint."""
    return OrtSettings(optimization=print_.optimization, threads=print_.threads)


def feeds_of(print_: ModelPrint, model: Model) -> Feeds:
    """Returns the inputs of a fingerprint. Raises InputError where numpy draws other ones here."""
    feeds = random_arrays(model, print_.shapes, print_.seed)
    if digests(feeds) != print_.inputs:
        raise InputError(
            f"{print_.name}: this machine draws other random inputs from seed {print_.seed}",
            "Install the release of numpy that the other machine has.",
        )
    return feeds


def digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the SHA-256 of tensors by name; that of the text of what is no tensor."""
    return {name: recipes.digest(np.asarray(value)) for name, value in values.items()}


def read(path: Path) -> Fingerprint:
    """Reads a fingerprint. Raises InputError for a file that is none, or is damaged."""
    try:
        fingerprint = msgspec.json.decode(path.read_bytes(), type=Fingerprint)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: no fingerprint of a machine ({error})", _AGAIN) from error
    if fingerprint.format != FORMAT:
        raise InputError(
            f"{path}: a fingerprint of format {fingerprint.format}, where this tracer reads "
            f"{FORMAT}",
            "Use the same release of tracer on both machines.",
        )
    return fingerprint


@dataclass(frozen=True)
class OtherMachine:
    """The graph that runs on another machine, and the rules of its kernels there."""

    graph: SavedGraph
    rules: Mapping[tuple[str, ...], Rule | str] = field(repr=False)

    @classmethod
    def of(cls, model: Model, print_: ModelPrint) -> OtherMachine:
        """Follows the recipes of a fingerprint.

        Raises InputError for a damaged fingerprint, NotKnown where stored values do not follow from
        the model on this machine.
        """
        pool = pool_of(model, settings_of(print_))
        try:
            proto = onnx.ModelProto.FromString(_decompressed(print_.graph))
            rules = msgspec.json.decode(_decompressed(print_.rules), type=list[Rule])
            constants = dict(_constants(print_, pool))
            if len(print_.nodes) != len(proto.graph.node):
                raise ValueError("it has rules of other nodes")
            known = [each if isinstance(each, str) else rules[each] for each in print_.nodes]
        except (
            DecodeError, msgspec.MsgspecError, ValueError, IndexError, TypeError, zlib.error,
            MemoryError, RecursionError,
        ) as error:  # fmt: skip
            raise InputError(
                f"the fingerprint of {print_.name} is damaged: {error}", _AGAIN
            ) from error
        outputs = tuple(value.name for value in proto.graph.output)
        graph = SavedGraph(proto, outputs, print_.threads, constants)
        pairs = zip(proto.graph.node, known, strict=True)
        return cls(graph, {tuple(node.output): rule for node, rule in pairs})

    def rule_of(self, kernel: Kernel) -> Rule:
        """Returns the rule of a kernel there. Raises NotKnown with the reason."""
        rule = self.rules[tuple(kernel.node.output)]
        if isinstance(rule, str):
            raise NotKnown(rule)
        return rule


def _constants(print_: ModelPrint, pool: Pool) -> Iterator[tuple[str, Array]]:
    for name, recipe in print_.constants.items():
        try:
            yield name, recipes.follow(recipe, pool)
        except NotKnown as reason:
            raise NotKnown(f"'{name}': {reason}") from reason


def _decompressed(data: bytes) -> bytes:
    return zlib.decompressobj().decompress(data, _MOST_BYTES)
