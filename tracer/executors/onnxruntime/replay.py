"""Times kernels and nodes alone, without the profiler: a check of the corrected times.

A graph of many copies of a kernel takes longer than a graph of few copies, by the time of the
extra copies. The two alternate with each other and with undisturbed runs of the whole model, so
that changes in the machine's speed cancel out. A large model runs before and after all kernels: its
session leaves the memory meanwhile. The result is the share of a whole run. With several
threads, those of the session before sleep by then, and those of the next are awake as in the model.

Copies share their inputs, which are warm in the cache, as in the model they were just written.
Copies have weights of their own until the copies hold as many bytes as the weights of the model:
so many bytes pass between two uses of a weight in the model.

A `Piece` is a node that was cut out of a graph, with its weights and its input values in one run.
The graph is the optimised one, whose nodes are kernels, or the model itself. A kernel is located by
the tensors it computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from tracer.containment.activity import Progress
from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import all_outputs, feeding, kernel_nodes, sessions
from tracer.executors.settings import OrtSettings
from tracer.graph import stored_weights, tensor_type
from tracer.graph.model import Model, Node, bodies, encoded
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.interpreter.values import type_proto
from tracer.records.trace import Kernel
from tracer.support.measurements import SPINNING_S, times_us
from tracer.support.types import Array, FloatArray

_SECONDS = 0.4
"""Time spent on each piece."""

_LEAST_ROUNDS = 9
_RUNS = 3
"""Timed runs of each graph in a round, after one that is not timed."""

_FEW = 1
_LEAST_MORE, _MOST_MORE = 4, 60
"""Limits of the extra copies. The long graph takes about as long as a whole run: runs of equal
length are equally likely to be interrupted."""

_MOST_BYTES, _MOST_BESIDE_A_LARGE_MODEL = 1 << 30, 1 << 28
"""Bytes of the weights of all copies: more than caches hold. They are in memory twice: a session
packs them for its kernels."""


def shares(
    model: Model,
    pieces: Sequence[Piece | None],
    feedset: FeedSet,
    settings: OrtSettings,
    progress: Progress,
) -> FloatArray:
    """Returns the time of one call of each piece of `model` ÷ the time of a whole run.

    NaN stands for what is no piece, or onnxruntime refuses to run alone.
    """
    factory = sessions.Factory.of(model, settings)
    plain = feeding.PlainSession(factory, feedset)
    rest_s = 0.0 if settings.threads == 1 else SPINNING_S

    def whole_us() -> float:
        with sessions.running(model):
            return _block_us(plain.run, rest_s)

    if not plain.closes_for_profiler:
        return _shares(model, pieces, whole_us, settings, progress)
    before = whole_us()
    plain.close()
    shares = _shares(model, pieces, lambda: before, settings, progress)
    return shares * before / (before + whole_us()) * 2


def _shares(
    model: Model,
    pieces: Sequence[Piece | None],
    whole_us: Callable[[], float],
    settings: OrtSettings,
    progress: Progress,
) -> FloatArray:
    shares = np.full(len(pieces), np.nan)
    for index, piece in enumerate(pieces):
        progress(index, len(pieces), "replaying")
        if piece is not None:
            with sessions.running(model):
                shares[index] = _share(
                    piece, whole_us, stored_weights.stored_bytes(model), settings
                )
    progress(len(pieces), len(pieces), "replaying")
    return shares


def _share(
    piece: Piece, whole_us: Callable[[], float], model_bytes: int, settings: OrtSettings
) -> float:
    """Returns the median over rounds; NaN where onnxruntime refuses the piece."""
    distinct, most_more = 1, _MOST_MORE
    if piece.weight_bytes:
        is_much = stored_weights.is_much(model_bytes)
        most = _MOST_BESIDE_A_LARGE_MODEL if is_much else _MOST_BYTES
        fitting = max(1, most // piece.weight_bytes)
        # weights that are nodes, not initializers, are no bytes of the model
        distinct = max(1, min(-(-model_bytes // piece.weight_bytes), fitting))
        if is_much:  # each copy packs its weights
            most_more = max(1, model_bytes // piece.weight_bytes // 2)
    try:
        few = runner(piece, _FEW, distinct, settings)
        fit = int(whole_us() / max(_block_us(few, 0) / _FEW, 1e-9))
        more = min(max(_LEAST_MORE, min(_MOST_MORE, fit)), most_more)
        many = runner(piece, _FEW + more, distinct, settings)
        many()
    except (InputError, ModelError):
        return float("nan")
    rest_s = 0.0 if settings.threads == 1 else SPINNING_S
    rounds: list[float] = []
    end = time.monotonic() + _SECONDS
    before = whole_us()
    while len(rounds) < _LEAST_ROUNDS or time.monotonic() < end:
        long, short = (_block_us(run, rest_s) for run in (many, few))
        after = whole_us()
        rounds.append((long - short) / more / (before + after) * 2)
        before = after
    return float(np.median(rounds))


def runner(
    piece: Piece, count: int, distinct: int, settings: OrtSettings
) -> Callable[[], list[object]]:
    """Returns a function that runs `count` copies once and returns the output of the last."""
    proto, values = piece.copies(count, distinct)
    unoptimized = OrtSettings(
        threads=settings.threads, optimization="none", provider=settings.provider
    )
    model = Model.of(proto)
    stored = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in values.items()}
    session = sessions.Factory(model, encoded(proto, model.name), unoptimized, stored).open()
    run = feeding.runner(model, session, dict(piece.feeds))
    return partial(feeding.run_beside, run, values)


def _block_us(run: Callable[[], object], rest_s: float) -> float:
    """Returns the median time of a few runs, after a run that wakes threads and fills caches."""
    time.sleep(rest_s)
    return sorted(times_us(run, _RUNS, warmup=1))[_RUNS // 2]


def cut_kernels(
    model: Model, saved: Path, feeds: Feeds, kernels: Sequence[Kernel]
) -> list[Piece | None]:
    """Returns a piece of the graph `saved` for each kernel.

    None stands for a kernel with a body or inside one, or of element types that numpy lacks.
    """
    proto = kernel_nodes.saved_proto(saved)
    model = Model.of(proto, saved, model.name)
    makers = {name: node for node in proto.graph.node for name in node.output if name}
    nodes = []
    for kernel in kernels:
        node = None if kernel.scope else makers.get(next(filter(None, kernel.outputs), ""))
        is_foreign = any(_is_foreign(kind.dtype) for kind in kernel.input_types)
        nodes.append(None if node is None or bodies(node) or is_foreign else node)
    return _pieces(model, proto, feeds, nodes)


def cut_nodes(model: Model, feeds: Feeds, nodes: Sequence[Node]) -> list[Piece | None]:
    """Returns a piece of `model` itself for each of its nodes.

    None stands for a node with a body or inside one, or of element types that numpy lacks.
    """
    proto = onnx.ModelProto.FromString(kernel_nodes.serialize(model))
    protos = [
        None if node.scope.owner is not None or bodies(node.proto) else node.proto for node in nodes
    ]
    return _pieces(model, proto, feeds, protos)


def _pieces(
    model: Model,
    proto: onnx.ModelProto,
    feeds: Feeds,
    nodes: Sequence[onnx.NodeProto | None],
) -> list[Piece | None]:
    """Returns a piece for each of `nodes` of the main graph of `proto`, a form of `model`."""
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            tensor = weights[node.output[0]] = deepcopy(node.attribute[0].t)
            tensor.name = node.output[0]
    names = {n for each in nodes if each is not None for n in each.input if n} - set(weights)
    values = {name: feeds[name] for name in names if name in feeds}
    if intermediate := sorted(names - set(values)):
        values |= all_outputs.runner(model, deepcopy(proto), intermediate)(feeds)
    pieces: list[Piece | None] = []
    for each in nodes:
        read = [] if each is None else each.input
        fed = {name: values[name] for name in read if name in values}
        if each is None or not all(_is_plain(value) for value in fed.values()):
            pieces.append(None)
            continue
        stored = {name: weights[name] for name in read if name in weights}
        opsets = list(proto.opset_import)
        pieces.append(Piece(each, stored, fed, opsets, proto.ir_version, model.folder))
    return pieces


def _is_foreign(dtype: str) -> bool:
    """Returns whether numpy lacks the element type: bfloat16, float8, int4, sequences."""
    try:
        return np.dtype(dtype).kind not in "biufc"
    except TypeError:
        return True


def _is_plain(value: Any) -> bool:
    """Returns whether a value is an array of numbers: None is of a type that numpy lacks."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"


@dataclass(frozen=True)
class Piece:
    """One node, the stored tensors it reads, and the values (numpy) of its other inputs.

    `opsets` and `ir_version` are taken from the graph of the node. External data are in `folder`,
    and are read when a model is made.
    """

    node: onnx.NodeProto
    weights: Mapping[str, onnx.TensorProto] = field(repr=False)
    feeds: Mapping[str, Any] = field(repr=False)
    opsets: Sequence[onnx.OperatorSetIdProto] = field(repr=False)
    ir_version: int
    folder: Path | None = None

    @property
    def weight_bytes(self) -> int:
        """Size of the stored tensors."""
        kinds = map(tensor_type.from_initializer, self.weights.values())
        return sum(kind.nbytes or 0 for kind in kinds)

    def copies(self, count: int, distinct: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """Returns `count` copies of the node side by side, which share `distinct` sets of weights.

        Returns the values of weights that lie outside the model as well, by name. All copies read
        the same inputs; the output is the output of the last copy. Without optimisation the runtime
        also computes the copies whose output nobody reads.
        """
        nodes = []
        for index in range(count):
            node = deepcopy(self.node)
            node.name = f"copy{index}"
            node.input[:] = [self._copied(name, index % distinct) for name in self.node.input]
            node.output[:] = [f"{name}#{index}" if name else "" for name in self.node.output]
            nodes.append(node)
        stored, values = self._stored(min(count, distinct))
        inputs = [helper.make_value_info(name, type_proto(v)) for name, v in self.feeds.items()]
        graph = helper.make_graph(nodes, "replay", inputs, [], stored)
        graph.output.add(name=next(name for name in nodes[-1].output if name))
        proto = helper.make_model(graph, opset_imports=self.opsets, ir_version=self.ir_version)
        return proto, values

    def _stored(self, sets: int) -> tuple[list[onnx.TensorProto], dict[str, Array]]:
        """Returns so many sets of the weights, and the values of external ones.

        The first set of these stays in its file, which is mapped; further sets are copies.
        """
        stored, values = [], {}
        for name, tensor in self.weights.items():
            read: Array | None = None  # external data of a type that numpy has
            if uses_external_data(tensor) and self.folder is not None:
                mapped = stored_weights.read_external(tensor, self.folder)
                read = mapped if _is_plain(mapped) else None
            for index in range(sets):
                copied = self._copied(name, index)
                if read is None:
                    whole = deepcopy(tensor)
                    whole.name = copied
                    if uses_external_data(tensor):
                        load_external_data_for_tensor(whole, str(self.folder))
                    stored.append(whole)
                else:
                    values[copied] = read.copy() if index else read
                    kind = helper.np_dtype_to_tensor_dtype(read.dtype)
                    apart = onnx.TensorProto(name=copied, data_type=kind, dims=read.shape)
                    apart.data_location = onnx.TensorProto.EXTERNAL
                    apart.external_data.add(key="location", value="memory")
                    stored.append(apart)
        return stored, values

    def _copied(self, name: str, index: int) -> str:
        return f"{name}#{index}" if name in self.weights else name
