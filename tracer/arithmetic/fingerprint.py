"""The fingerprint of a machine: what its onnxruntime computes, to be replayed on another machine.

It has, for each model, the graph that runs there and the rules of its kernels. Weights are not in
it: a stored value of the graph is told by what it follows from. It is one of the model, or of the
graph at a lower level; or a reordering of one, padded with zeros, for kernels that work on blocks
of channels. Small values are kept as they are.
"""

import hashlib
import math
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError

from tracer.arithmetic import runs
from tracer.arithmetic.kernel import Kernel, NotKnown, Rule, parts
from tracer.arithmetic.replays import conv
from tracer.errors import InputError
from tracer.executors.settings import OrtSettings
from tracer.graph.model import Model, bodies, names_read
from tracer.inputs.feedset import Feeds, FeedSet, random_arrays
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.values import from_tensor
from tracer.records import environment
from tracer.records.bits import Fingerprint, ModelPrint, Recipe
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
        dict(environment.versions()), conv.block_size(), models,
    )  # fmt: skip


def take(
    model: Model, settings: OrtSettings, feeds: Feeds, seed: int, rule_of: runs.RuleOf, until: float
) -> ModelPrint:
    """Returns what this machine computes for a model, on inputs that were drawn from `seed`.

    Kernels whose rule is not found by the time `until`, of `time.monotonic`, are not known. Raises
    the errors of `SavedGraph.of`.
    """
    graph = runs.SavedGraph.of(model, settings)
    pool = pool_of(model, settings)
    values = graph.runner(model)(feeds)
    rules: dict[bytes, int] = {}
    inner: dict[tuple[str, ...], int | str] = {}

    def number_of(rule: Rule) -> int:
        return rules.setdefault(msgspec.json.encode(rule), len(rules))

    def in_body(kernel: Kernel) -> Rule:
        outputs = tuple(kernel.node.output)
        try:
            rule = rule_of(kernel)
            inner[outputs] = number_of(rule)
        except NotKnown as reason:
            inner[outputs] = str(reason)
            raise
        return rule

    nodes: list[int | str] = []
    for node in graph.nodes:
        try:
            if time.monotonic() > until:
                raise NotKnown("the time was up")
            if bodies(node):
                rule, reason, _ = runs.replay_node(graph, node, in_body, values)
                nodes.append(reason if rule is None else number_of(rule))
            else:
                nodes.append(number_of(rule_of(graph.kernel(node, values))))
        except NotKnown as reason:
            nodes.append(str(reason))
    bare = onnx.ModelProto()
    bare.CopyFrom(graph.proto)
    del bare.graph.initializer[:]
    return ModelPrint(
        Path(model.name).name, model.sha256, settings.optimization, settings.threads, seed,
        FeedSet(feeds, None).shapes, digests(feeds),
        digests(runs.outputs_of(model, settings)(feeds)), tuple(nodes),
        zlib.compress(b"[" + b",".join(rules) + b"]", 9),
        {name: recipe_of(value, pool) for name, value in graph.constants.items()},
        zlib.compress(bare.SerializeToString(), 9), tuple(inner.items()),
    )  # fmt: skip


def pool_of(model: Model, settings: OrtSettings) -> "Pool":
    """Returns the values that recipes begin with: those of the graphs at lower levels."""
    lower = (
        runs.SavedGraph.of(model, OrtSettings(optimization=level, threads=settings.threads))
        for level in LOWER_LEVELS
    )
    constants = [value for graph in lower for value in graph.constants.values()]
    # kernels without halves have them in single precision, and lay them out like others
    singles = (value.astype(np.float32) for value in constants if value.dtype == np.float16)
    return by_digest((*constants, *singles))


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
    """Returns the SHA-256 of tensors by name; that of all tensors of a sequence or map."""
    return {name: digest(*parts(value)) for name, value in values.items()}


def read(path: Path) -> Fingerprint:
    """Reads a fingerprint. Raises InputError for a file that is none, or is damaged."""
    try:
        fingerprint = msgspec.json.decode(path.read_text("utf-8"), type=Fingerprint)
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

    graph: runs.SavedGraph
    rules: Mapping[tuple[str, ...], Rule | str] = field(repr=False)

    @classmethod
    def of(cls, model: Model, print_: ModelPrint) -> "OtherMachine":
        """Follows the recipes of a fingerprint.

        Raises InputError for a damaged fingerprint, NotKnown where stored values do not follow from
        the model on this machine.
        """
        pool = pool_of(model, settings_of(print_))
        try:
            proto = onnx.ModelProto.FromString(_decompressed(print_.graph))
            rules = msgspec.json.decode(_decompressed(print_.rules), type=list[Rule])
            constants = {}
            for name, recipe in print_.constants.items():
                try:
                    constants[name] = follow(recipe, pool)
                except NotKnown as reason:
                    raise NotKnown(f"'{name}': {reason}") from reason
            if len(print_.nodes) != len(proto.graph.node):
                raise ValueError("it has rules of other nodes")
            given = {
                tuple(n.output): r for n, r in zip(proto.graph.node, print_.nodes, strict=True)
            }
            given = dict(print_.inner) | given
            known = {key: r if isinstance(r, str) else rules[r] for key, r in given.items()}
        except (
            DecodeError, msgspec.MsgspecError, ValueError, IndexError, TypeError, zlib.error,
            MemoryError, RecursionError,
        ) as error:  # fmt: skip
            raise InputError(
                f"the fingerprint of {print_.name} is damaged: {error}", _AGAIN
            ) from error
        outputs = tuple(value.name for value in proto.graph.output)
        graph = runs.SavedGraph(proto, outputs, print_.threads, constants)
        return cls(graph, known)

    def rule_of(self, kernel: Kernel) -> Rule:
        """Returns the rule of a kernel there. Raises NotKnown with the reason."""
        rule = self.rules.get(tuple(kernel.node.output), "the node did not run there")
        if isinstance(rule, str):
            raise NotKnown(rule)
        return rule


def _decompressed(data: bytes) -> bytes:
    return zlib.decompressobj().decompress(data, _MOST_BYTES)


_BLOCKS = (8, 16)
_MOST_INLINE = 1 << 14
"""Bytes of a value that is kept as it is; larger ones would be the weights themselves."""
Pool = Mapping[str, list[Array]]
"""Known values by their digest; the values of a digest differ in shape."""


def digest(*values: Array) -> str:
    """Returns the SHA-256 of type and bytes, as text."""
    content = (value.dtype.str.encode() + value.tobytes() for value in values)
    return hashlib.sha256(b"".join(content)).hexdigest()


def stored_numbers(model: Model, nodes: Iterable[onnx.NodeProto]) -> dict[str, str]:
    """Returns the digest of all numbers in the weights that nodes of a model read, by their type.

    They are sorted, without zeros, so weights in another order, joined or padded are the same.
    Scalars belong to an operator that another model has in one: without weights, the type has "".
    Indices and text are none.
    """
    nodes, folder = list(nodes), model.folder
    read = {name for node in nodes for name in names_read(node)}
    tensors = [each for each in model.graph.initializer if each.name in read]
    tensors += [a.t for node in nodes for a in node.attribute if a.HasField("t")]
    found: dict[str, dict[str, Array]] = {}
    for value in (from_tensor(each, folder) for each in tensors):
        kind = value.dtype.kind
        if kind in "fV" or (kind in "iu" and value.itemsize < runs.INDEX_BYTES):
            numbers = value.reshape(-1)[: value.size if value.size > 1 else 0]
            found.setdefault(str(value.dtype), {})[digest(value)] = numbers
    joined = {dtype: np.concatenate([*values.values()]) for dtype, values in found.items()}
    sorts = {dtype: np.sort(every.view(f"u{every.itemsize}")) for dtype, every in joined.items()}
    return {dtype: digest(n[n != 0]) if n.size else "" for dtype, n in sorts.items()}


def by_digest(values: Iterable[Array]) -> Pool:
    """Returns values by their digest."""
    pool: dict[str, list[Array]] = {}
    for value in values:
        same = pool.setdefault(digest(value), [])
        if all(value.shape != other.shape for other in same):
            same.append(value)
    return pool


def recipe_of(value: Array, pool: Pool) -> Recipe:
    """Returns the recipe of a value."""
    sha256, kind = digest(value), value.dtype.str
    if sha256 in pool:
        return Recipe(sha256, kind, value.shape, sha256)
    ways = [(1, 1), *((block, inner) for block in _BLOCKS for inner in (block, 1))]
    for source, shapes in pool.items():
        for original in shapes:
            for block, inner in ways if original.dtype == value.dtype else ():
                made = _reordered(original, value.shape, block, inner)
                if made is not None and np.array_equal(made, value) and digest(made) == sha256:
                    return Recipe(sha256, kind, value.shape, source, block, inner)
    data = zlib.compress(value.tobytes()) if value.nbytes <= _MOST_INLINE else b""
    return Recipe(sha256, kind, value.shape, data=data)


def follow(recipe: Recipe, pool: Pool) -> Array:
    """Returns the value of a recipe, checked by its digest.

    Raises NotKnown where this machine lacks its source, ValueError for a damaged recipe.
    """
    if recipe.source and recipe.source not in pool:
        raise NotKnown("its weights follow from none of the values on this machine")
    if recipe.source:
        found = pool[recipe.source]
        exact = recipe.source == recipe.sha256
        ways = [each.reshape(recipe.shape) for each in found[:1]] if exact else [
            _reordered(each, recipe.shape, recipe.block, recipe.inner) for each in found
        ]  # fmt: skip
        made = next((each for each in ways if each is not None), None)
    elif recipe.data or 0 in recipe.shape:
        content = zlib.decompressobj().decompress(recipe.data, _MOST_INLINE)
        made = np.frombuffer(content, np.dtype(recipe.dtype)).reshape(recipe.shape)
    else:
        raise NotKnown("its weights follow from none of the model, and are too large for the file")
    if made is None or digest(made) != recipe.sha256:
        raise ValueError("a stored value does not have its SHA-256")
    return made


def _reordered(value: Array, shape: tuple[int, ...], block: int, inner: int) -> Array | None:
    """Returns a value padded to a shape and in blocks of channels; None where it does not fit."""
    if value.ndim != len(shape) or not shape or value.shape[2:] != shape[2:]:
        return None
    pairs = zip(value.shape, shape, strict=True)
    if not all(own <= most < own + max(_BLOCKS) for own, most in pairs):
        return None
    padded = np.zeros(shape, value.dtype)
    padded[tuple(map(slice, value.shape))] = value
    if block == inner == 1:
        return padded
    if len(shape) < 2 or shape[0] % block or shape[1] % inner:
        return None
    volume = math.prod(shape[2:])
    apart = padded.reshape(shape[0] // block, block, shape[1] // inner, inner, volume)
    return np.ascontiguousarray(apart.transpose(0, 2, 4, 3, 1)).reshape(shape)
