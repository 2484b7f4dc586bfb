"""Runs without the profiler: of the model, of a model without nodes, and without their outputs.

A session holds weights of its own: onnxruntime packs them anew for its kernels. Small models keep
the plain and the profiled session open, as opening takes time; large ones would need their weights
twice, so one closes for the other.

An empty run has the same inputs as the model, as many outputs of few bytes, and no node. Its time
is the overhead of every inference: the call from Python, the check of the feeds, and the return of
outputs. A stored tensor of the size of an output would be copied, which no kernel does: it writes
its output where the caller reads it.

onnxruntime may copy outputs, and their type and device decide whether it does. Where inputs and
outputs are bound to a session, outputs stay with onnxruntime. What such a run saves, beyond what it
saves in an empty run, is the cost of returning the outputs: part of the wall, and of no node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import feeding, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import stored_weights
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, encoded
from tracer.executors.settings import OrtSettings
from tracer.graph import footprint
from tracer.graph.encoding import encoded
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.support.timing import elapsed_us
from tracer.support.types import Array

_LEAST_BYTES = 1 << 16
"""Smaller outputs are returned in a few µs, which an empty run takes as well."""

_PAIRS = 5
"""Pairs of runs in a turn."""


@dataclass
class PlainSession:
    """Opens a session for the first inference, and again for the first one after it was closed."""

    factory: sessions.Factory
    feedset: FeedSet
    session: Any = field(default=None, repr=False)
    _run: Callable[[], list[object]] | None = field(default=None, repr=False)

    @property
    def closes_for_profiler(self) -> bool:
        """Whether it must be closed while another session on the model is open."""
        return stored_weights.is_large(self.factory.model)

    def run(self) -> list[object]:
        """Runs one inference and returns the outputs."""
        if self._run is None:
            self.session = self.factory.open()
            self._run = feeding.prepared(self.factory, self.session, self.feedset.feeds)
        return self._run()

    def close(self) -> None:
        """Frees the session."""
        self._run = self.session = None


@dataclass(frozen=True, slots=True)
class EmptyRun:
    """Runs one empty inference on `session` when it is called."""

    model: Model
    session: Any
    run: Callable[[], object]

    def __call__(self) -> object:
        """Runs one inference."""
        return self.run()


def empty_runner(
    model: Model, feeds: Feeds, results: list[Any], settings: OrtSettings
) -> EmptyRun | None:
    """Returns a function that runs one empty inference; None where onnxruntime refuses the model.

    `results` are the outputs of a real run, in order. The outputs of an empty run have their types
    and ranks, and one element.
    """
    inputs = {value.name for value in model.inputs}
    stored = {
        output.name: np.zeros([1] * value.ndim, value.dtype)
        for output, value in zip(model.graph.output, results, strict=True)
        if isinstance(value, np.ndarray)
        and value.dtype.kind in "biuf"
        and output.name not in inputs
    }
    if not stored:
        return None
    empty = Model(_model_without_nodes(model, stored), model.path, "", ())
    serialized = encoded(empty.proto, model.name)
    try:
        session = sessions.Factory(empty, serialized, settings).open()
        run = feeding.runner(empty, session, feeds)
        run()
    except (ModelError, InputError):  # an element type, say, that stored tensors cannot have
        return None
    return EmptyRun(empty, session, run)


def _model_without_nodes(model: Model, stored: Mapping[str, Array]) -> onnx.ModelProto:
    """Returns the model without nodes; its outputs are stored tensors, others are dropped."""
    tensors = [numpy_helper.from_array(value, name) for name, value in stored.items()]
    outputs = [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in tensors
    ]
    graph = helper.make_graph([], "empty", list(model.inputs), outputs, tensors)
    return helper.make_model(
        graph,
        opset_imports=model.proto.opset_import,
        ir_version=max(model.proto.ir_version, IR_WITH_UNLISTED_WEIGHTS),
    )


@dataclass
class ReturnComparison:
    """Pairs of runs with and without the return of outputs, of the model and of an empty model."""

    model: tuple[Callable[[], object], Callable[[], object]]
    empty: tuple[Callable[[], object], Callable[[], object]]
    savings_us: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        """Times some pairs."""
        for _ in range(_PAIRS):
            whole, unreturned, empty, bare = map(elapsed_us, (*self.model, *self.empty))
            self.savings_us.append(whole - unreturned - (empty - bare))

    def us(self) -> float:
        """Returns the median time of returning the outputs, µs; NaN before the first turn."""
        return max(0.0, float(np.median(self.savings_us))) if self.savings_us else float("nan")


def compare_returning(
    factory: sessions.Factory,
    feeds: Feeds,
    results: Sequence[Any],
    plain: PlainSession,
    empty: EmptyRun | None,
) -> ReturnComparison | None:
    """Returns a comparison for a model whose outputs, `results`, may take long to return.

    None for small outputs, and where runs without their return cannot be made.
    """
    size = sum(value.nbytes for value in results if isinstance(value, np.ndarray))
    is_bound = factory.settings.session.bound
    if size < _LEAST_BYTES or empty is None or plain.closes_for_profiler or is_bound:
        return None
    if not _are_as_declared(results, plain.session):
        return None
    unreturned = feeding.unreturned(factory.model, plain.session, feeds)
    bare = feeding.unreturned(empty.model, empty.session, feeds)
    if unreturned is None or bare is None:
        return None
    return ReturnComparison((plain.run, unreturned), (empty, bare))


def _are_as_declared(results: Sequence[Any], session: Any) -> bool:
    """Returns whether outputs have the sizes that the model declares.

    Bound outputs of other sizes are an error; of those that are returned onnxruntime only warns.
    """
    for value, output in zip(results, session.get_outputs(), strict=True):
        shape, declared = np.shape(value), output.shape or np.shape(value)
        sizes = zip(shape, declared, strict=False)
        if len(shape) != len(declared) or any(d != n for n, d in sizes if isinstance(d, int)):
            return False
    return True
