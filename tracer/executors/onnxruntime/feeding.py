"""Makes functions of one inference: of a model, of one without nodes, and without its outputs.

Feeds are converted for onnxruntime once, in advance. A signal or a time limit ends a run, in which
no signal handler of Python runs.

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

import ctypes
import ctypes.util
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from tracer.containment import signals, watch
from tracer.errors import InputError, ModelError, UsageError
from tracer.executors.onnxruntime import sessions
from tracer.executors.settings import OrtSettings
from tracer.graph import stored_weights, tensor_type
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, encoded
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.records import environment
from tracer.records.counted_runs import Usage
from tracer.support.measurements import RunTimer

_LEAST_BYTES = 1 << 16
"""Smaller outputs are returned in a few µs, which an empty run takes as well."""
_TEXT_BYTES = 128
"""Bytes of numbers that are returned in the time of one text, some 10 ns."""
_LARGE_REQUEST = 1 << 16
"""Bytes that glibc takes from what was freed (from 1,024 on), and not from the system (128 kB)."""
_PAIRS = 5
"""Pairs of runs in a turn."""
_Result = TypeVar("_Result")
Memory: TypeAlias = tuple[str, int]
"""onnxruntime's name of the memory of a kind of device, and the number of the device."""
CPU: Memory = ("cpu", 0)
_FENV_WORDS = 8
"""32-bit words of the largest `fenv_t` of the C libraries below."""
_REGISTERS = {
    "x86_64": (7, 0x8040),  # MXCSR: flush to zero, denormals are zero
    "aarch64": (0, 1 << 24),  # FPCR: flush to zero
}
"""By the machine's name: the word of `fenv_t` that holds the control register, and its bits to set,
as glibc lays it out (sysdeps/*/fpu/bits/fenv.h)."""
_NO_CAPTURE = ("gpu_graph_id", "-1")
"""Records no graph of a GPU, which nobody asked for.

A run with bound values looks the entry up, and without one onnxruntime 1.31 raises and catches an
exception in each run: 29 µs, as much as all of a small model.
"""
FOREIGN = re.compile(r"tensor\((bfloat16|u?int[24]|float[48]e\w+)\)")
"""onnxruntime's names of the tensors that numpy has no element type for."""
_REGISTERED = 2
"""`isbuiltin` of the element types of ml_dtypes; their kind is V, but f for float8_e5m2."""
_NIBBLE = 4
_MANY = 1_000
"""Inputs up to which the check of names in `InferenceSession.run` takes some ms at most.

It takes 5 s for 20,000 inputs, since its time grows with their square. Inputs that are bound to the
session are not checked: binding 20,000 takes 0.3 s, once, and a run 0.02 s.
"""


def runner(model: Model, session: Any, feeds: Feeds) -> Callable[[], list[Any]]:
    """Returns a function that runs one inference and returns its outputs.

    Arrays of element types that numpy lacks are passed as onnxruntime's own values, and the outputs
    are such values too where one has such a type; see `as_array`. The function raises InputError
    for feeds that cannot be passed or do not run.
    """
    if watch.is_search():
        sessions.find_crashing_node(model, lambda part: runner(model, part, feeds)())
    options = run_options()
    is_foreign = any(map(_is_foreign, feeds.values()))
    gives_foreign = any(FOREIGN.fullmatch(output.type) for output in session.get_outputs())
    if not is_foreign and (any(map(_is_text, feeds.values())) or not gives_foreign):
        arrays = dict(feeds)
        if len(arrays) > _MANY and _is_bindable(session):
            bound = sessions.translated(model, lambda: _bind_inputs(session, arrays, options))()
            return sessions.translated(model, bound)
        return sessions.translated(model, lambda: session.run(None, arrays, options))
    for name in (name for name, value in feeds.items() if _is_text(value)):
        other = next(other for other, value in feeds.items() if _is_foreign(value))
        raise InputError(
            f"{model.name}: onnxruntime's Python interface takes no text, as input '{name}' "
            f"is, beside a type that numpy lacks, as that of '{other}'",
            sessions.WITHOUT,
        )
    own = values(model, feeds)
    return sessions.translated(model, lambda: session.run_with_ort_values(None, own, options))


def prepared(factory: sessions.Factory, session: Any, feeds: Feeds) -> Callable[[], list[Any]]:
    """Returns `runner`, with what the settings of `factory` say of a run.

    Outputs that are bound to memory are onnxruntime's own values, which the next run overwrites.
    """
    chosen, memory = factory.settings.session, memory_of(factory.settings, session)
    if (chosen.bound or memory != CPU) and _is_bindable(session):
        run = _run_in_place(factory.model, session, feeds, memory)
    else:
        run = runner(factory.model, session, feeds)
    return flush_denormals(run) if chosen.flushes_denormals else run


def memory_of(settings: OrtSettings, session: Any) -> Memory:
    """Returns where inputs and outputs of a session's runs stay: its provider's memory, if it runs.

    A copy to a card and back takes longer than many networks, and is not the network's work.
    """
    provider = environment.provider_of(settings.provider)
    if provider.memory == CPU[0] or provider.name not in session.get_providers():
        return CPU
    return provider.memory, int(settings.provider_options.get("device_id", 0))


def _run_in_place(
    model: Model, session: Any, feeds: Feeds, memory: Memory
) -> Callable[[], list[Any]]:
    """Returns a function that runs on memory bound to inputs and outputs, which stay there."""
    options = run_options()
    arrays = {name: np.asarray(value, order="C") for name, value in feeds.items()}
    binding = sessions.translated(
        model, lambda: bind(session, values(model, arrays, memory), memory)
    )()
    sessions.translated(model, lambda: session.run_with_iobinding(binding, options))()
    outputs = list(binding.get_outputs())
    for output, value in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_ortvalue_output(output.name, value)

    def run() -> list[Any]:
        session.run_with_iobinding(binding, options)
        return outputs

    return sessions.translated(model, partial(run_beside, run, arrays))


def run_beside(run: Callable[[], Any], arrays: object) -> Any:
    """Runs a session that reads `arrays` where they are: they must live as long."""
    return run()


def unreturned(model: Model, session: Any, feeds: Feeds) -> Callable[[], object] | None:
    """Returns a function that runs one inference whose outputs stay with onnxruntime.

    None where they cannot. Text cannot be bound to a session, but stays in onnxruntime's values.
    """
    described = (*session.get_inputs(), *session.get_outputs())
    if not all(each.type.startswith("tensor(") for each in described):
        return None
    if any(_is_foreign(value) or _is_text(value) for value in feeds.values()):
        return None
    own, options = values(model, feeds), run_options()
    if not _is_bindable(session):
        run = partial(session.run_with_ort_values, None, own, options)
        return partial(run_beside, run, feeds)
    binding = bind(session, own)
    return partial(run_beside, lambda: session.run_with_iobinding(binding, options), feeds)


def _bind_inputs(
    session: Any, arrays: dict[str, Any], options: ort.RunOptions
) -> Callable[[], list[Any]]:
    """Returns a function that runs with these arrays, which are bound to the session here."""
    binding = bind(session, {name: _share_memory(array) for name, array in arrays.items()})

    def run() -> list[Any]:
        session.run_with_iobinding(binding, options)
        return list(binding.copy_outputs_to_cpu())

    return run


def bind(session: Any, inputs: Mapping[str, ort.OrtValue], memory: Memory = CPU) -> Any:
    """Returns a binding of a session to its inputs, and to outputs that it allocates itself.

    Outputs lie in `memory`.
    """
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, *memory)
    return binding


def _is_bindable(session: Any) -> bool:
    """Returns whether all inputs and outputs are tensors of numbers, the only ones it binds."""
    types = [each.type for each in (*session.get_inputs(), *session.get_outputs())]
    return all(each.startswith("tensor(") and each != "tensor(string)" for each in types)


def _is_text(value: Any) -> bool:
    if isinstance(value, list):  # a sequence, whose tensors may have different shapes
        return any(map(_is_text, value))
    return np.asarray(value).dtype.kind in "OSU"


def values(model: Model, feeds: Feeds, memory: Memory = CPU) -> dict[str, ort.OrtValue]:
    """Returns arrays as onnxruntime's own values, by input, in `memory`.

    Those of element types that numpy lacks stay with the CPU.
    """
    types = {value.name: value.type.tensor_type.elem_type for value in model.inputs}
    return {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(_packed_bytes(value), types[name])
        if _is_foreign(value)
        else _share_memory(value, memory)
        for name, value in feeds.items()
    }


def _share_memory(array: Any, memory: Memory = CPU) -> ort.OrtValue:
    """Returns a value of onnxruntime's in the memory of an array, or a copy in another `memory`."""
    return ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"), *memory)


def _is_foreign(value: Any) -> bool:
    """Returns whether the element type is of ml_dtypes: bfloat16, float8, int4."""
    return getattr(getattr(value, "dtype", None), "isbuiltin", 0) == _REGISTERED


def _packed_bytes(value: Any) -> Any:
    """Returns the bytes of an array of ml_dtypes, in its shape.

    A byte holds two 4-bit elements, the low one first. onnxruntime takes a packed tensor in an
    array of the unpacked shape and reads the front of the array.
    """
    data = np.asarray(value, order="C").view(f"u{value.dtype.itemsize}")
    if tensor_type.bits_of(value.dtype.name) != _NIBBLE:
        return data
    pairs = np.resize(np.append(data & 0xF, 0), (-(-data.size // 2), 2)).astype(np.uint8)
    raw = np.zeros(data.size, np.uint8)
    raw[: len(pairs)] = pairs[:, 0] | pairs[:, 1] << _NIBBLE
    return raw.reshape(value.shape)


def as_array(value: Any) -> Any:
    """Returns an output as an array, of an element type of ml_dtypes where numpy has none.

    A sparse tensor becomes dense.

    Raises RuntimeError for a value of onnxruntime's that is no tensor, ValueError for one of more
    dimensions than numpy has.
    """
    if isinstance(value, state.SparseTensor):
        dense = np.zeros(value.dense_shape(), value.values().dtype)
        np.put(dense, value.get_coo_data().indices(), value.values())
        return dense
    if not isinstance(value, ort.OrtValue):
        return value
    if value.device_name() != "cpu" or not FOREIGN.fullmatch(value.data_type()):
        return value.numpy()
    element, shape = value.element_type(), value.shape()
    if 0 in shape:  # it has no address
        return np.zeros(shape, helper.tensor_dtype_to_np_dtype(element))
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return numpy_helper.to_array(onnx.TensorProto(data_type=element, dims=shape, raw_data=raw))


def run_options() -> ort.RunOptions:
    """Returns the options of all runs; a signal sets their `terminate`, and runs in progress end.

    The run then fails, and the exception of the signal replaces the failure.
    """
    shared = _shared_options()
    shared.terminate = False
    return shared


@cache
def _shared_options() -> ort.RunOptions:
    made = ort.RunOptions()
    made.add_run_config_entry(*_NO_CAPTURE)

    def terminate() -> None:
        made.terminate = True

    signals.on_arrival(terminate)
    return made


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
            self._run = prepared(self.factory, self.session, self.feedset.feeds)
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
    stored = [
        numpy_helper.from_array(
            np.full([1] * value.ndim, "" if value.dtype.kind == "O" else 0, value.dtype),
            output.name,
        )
        for output, value in zip(model.graph.output, results, strict=True)
        if isinstance(value, np.ndarray)
        and value.dtype.kind in "biufO"
        and output.name not in inputs
    ]
    if not stored:
        return None
    outputs = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in stored]
    proto = helper.make_model(
        helper.make_graph([], "empty", list(model.inputs), outputs, stored),
        opset_imports=model.proto.opset_import,
        ir_version=max(model.proto.ir_version, IR_WITH_UNLISTED_WEIGHTS),
    )
    empty = Model.of(proto, model.path)
    serialized = encoded(empty.proto, model.name)
    try:
        session = sessions.Factory(empty, serialized, settings).open()
        run = runner(empty, session, feeds)
        run()
    except (ModelError, InputError):  # an element type, say, that stored tensors cannot have
        return None
    return EmptyRun(empty, session, run)


@dataclass
class ReturnComparison:
    """Pairs of runs with and without the return of outputs, of the model and of an empty model."""

    model: tuple[Callable[[], object], Callable[[], object]]
    empty: tuple[Callable[[], object], Callable[[], object]]
    timers: Sequence[RunTimer] = field(default_factory=lambda: [RunTimer() for _ in range(4)])

    def take_turn(self) -> None:
        """Times some pairs."""
        for _ in range(_PAIRS):
            for timer, run in zip(self.timers, (*self.model, *self.empty), strict=True):
                timer.time(run)

    def us(self) -> float:
        """Returns the median time of returning the outputs, µs; NaN before the first turn.

        Waits for a processor are longer than the return, and no part of it.
        """
        if not self.timers[0].us:
            return float("nan")
        whole, unreturned, empty, bare = (
            Usage(np.array(t.switches), np.array(t.cpu_us)).without_waits(np.array(t.us))
            for t in self.timers
        )
        return max(0.0, float(np.median(whole - unreturned - (empty - bare))))


def tidy_memory() -> None:
    """Has the C library sort the memory that earlier runs freed, which it does in a large request.

    In a profiled run the first kernel's event makes such a request: after 5,000 nodes, glibc spends
    100 to 500 µs there, of a run of 1,200 µs.
    """
    np.empty(_LARGE_REQUEST, np.uint8)


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
    arrays = [value for value in results if isinstance(value, np.ndarray)]
    size = sum(a.size * (_TEXT_BYTES if a.dtype.kind == "O" else a.itemsize) for a in arrays)
    is_bound = factory.settings.session.bound
    if size < _LEAST_BYTES or empty is None or plain.closes_for_profiler or is_bound:
        return None
    if not _are_as_declared(results, plain.session):
        return None
    kept = unreturned(factory.model, plain.session, feeds)
    bare = unreturned(empty.model, empty.session, feeds)
    if kept is None or bare is None:
        return None
    return ReturnComparison((plain.run, kept), (empty, bare))


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


def can_flush_denormals() -> bool:
    """Returns whether the control register of this machine can be set."""
    return _math_library() is not None


def flush_denormals(run: Callable[[], _Result]) -> Callable[[], _Result]:
    """Returns `run` with denormal inputs and results of arithmetic replaced by 0.

    onnxruntime sets the threads of a session so, but the thread that calls it only for the first
    session of a process. So this sets the control register of the calling thread around each run,
    by the C library's `fesetenv`, and restores it. Raises UsageError on a machine whose control
    register is not known.
    """
    library = _math_library()
    if library is None:
        raise UsageError(
            f"denormal numbers cannot be flushed to 0 on {platform.machine()} with this C library",
            "Set session.set_denormal_as_zero in a program of your own.",
        )
    word, bits = _REGISTERS[platform.machine()]

    def flushing() -> _Result:
        before = (ctypes.c_uint32 * _FENV_WORDS)()
        library.fegetenv(before)
        during = (ctypes.c_uint32 * _FENV_WORDS)(*before)
        during[word] |= bits
        library.fesetenv(during)
        try:
            return run()
        finally:
            library.fesetenv(before)

    return flushing


@cache
def _math_library() -> Any:
    """Returns the C library of mathematics; None where `fenv_t` is laid out otherwise."""
    name = ctypes.util.find_library("m")
    if platform.machine() not in _REGISTERS or name is None:
        return None
    return ctypes.CDLL(name) if platform.libc_ver()[0] == "glibc" else None
