"""Records of an export, the protocol of an `Exporter`, and the exporter of each framework."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

from tracer.errors import InputError, UsageError
from tracer.exporters import frameworks
from tracer.records.result import Result
from tracer.support.temporary import TemporaryFolder
from tracer.text import plural

Arrays: TypeAlias = "Sequence[NDArray[Any]]"
BATCH = "batch"
"""Name of the dynamic first dimension in every exported model."""
_DTYPES = ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input: its shape with the batch first, and the numpy name of its element type."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    def check(self) -> None:
        """Raises UsageError for an unsupported type or shape."""
        if self.dtype not in _DTYPES:
            hint = f"There are {', '.join(_DTYPES)}."
            if self.dtype == "bfloat16":  # so neither framework nor file could be fed and compared
                hint = "Neither torch nor onnxruntime takes numpy arrays of it: cast a float32."
            raise UsageError(f"no element type '{self.dtype}'", hint)
        if any(size < 1 for size in self.shape):
            raise UsageError(f"{list(self.shape)} is not a shape", "Every size is at least 1.")

    def with_batch(self, batch: int) -> "InputSpec":
        """Returns the input at another batch; a scalar is unchanged."""
        return InputSpec((batch, *self.shape[1:]) if self.shape else (), self.dtype)

    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """Returns random values: normal for floats, any for bytes, 0 or 1 for wider integers.

        Wider integers are indices, and every table has rows 0 and 1.
        """
        dtype = np.dtype(self.dtype)
        if dtype.kind == "f":
            return rng.standard_normal(self.shape).astype(dtype)
        if dtype.kind == "b" or dtype.itemsize > 1:
            return rng.integers(0, 2, self.shape).astype(dtype)
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, self.shape, dtype, endpoint=True)


def draw(inputs: Sequence[InputSpec], seed: int | Sequence[int]) -> list[NDArray[Any]]:
    """Returns random values for each input; `seed` may be a sequence, for several draws."""
    rng = np.random.default_rng(seed)
    return [spec.draw(rng) for spec in inputs]


def input_specs(shapes: Any, dtypes: str | Sequence[str]) -> tuple[InputSpec, ...]:
    """Returns a record for each input, of one shape or a sequence of shapes; () for None.

    Raises UsageError if the number of types is neither one nor the number of shapes.
    """
    if shapes is None:
        return ()
    if all(isinstance(size, int) for size in shapes):
        shapes = [shapes]
    names = [dtypes] * len(shapes) if isinstance(dtypes, str) else list(dtypes)
    if len(names) != len(shapes):
        raise UsageError(
            f"{len(names)} element types for {len(shapes)} inputs", "Give one, or one for each."
        )
    return tuple(InputSpec(tuple(s), n) for s, n in zip(shapes, names, strict=True))


def inputs_of(model: object, shapes: Any, dtypes: str | Sequence[str]) -> tuple[InputSpec, ...]:
    """Returns the inputs of `shapes`; for None those of the `input_shape` of `model`, () without.

    The attribute `input_shape` is the shape of one example, such as (3, 32, 32), or a tuple of
    shapes; `input_dtype`, if the model has it, replaces `dtypes` for them. Raises UsageError for a
    shape or a type that no input can have.
    """
    own = getattr(model, "input_shape", None)
    if shapes is None and isinstance(own, tuple) and own:
        several = own if all(isinstance(shape, tuple) for shape in own) else (own,)
        if all(isinstance(size, int) for shape in several for size in shape):
            shapes = [(1, *shape) for shape in several]
            dtypes = getattr(model, "input_dtype", dtypes)
    specs = input_specs(shapes, dtypes)
    for spec in specs:
        spec.check()
    return specs


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How to export; None leaves the choice to the exporter.

    `opset` of None is the framework's own. The largest error of a tensor may be `rtol` of its
    largest magnitude, and the RMS error `rtol` of its RMS, each plus `atol`. They are 1e-4, or 8
    roundings of a narrower type, and 1e-8 unless set. `to` converts a quantised ONNX model instead:
    QDQ to "qonnx", or QONNX to "qdq".
    """

    framework: str | None = None
    opset: int | None = None
    dynamic_batch: bool = True
    keep_batchnorm: bool = False
    atol: float | None = None
    rtol: float | None = None
    seed: int = 0
    force: bool = False
    to: str | None = None


@dataclass(frozen=True)
class Conversion:
    """A framework's model as ONNX, and functions that compute its values in the framework.

    `run` maps inputs to the framework's outputs, in the order of the graph. `values` maps inputs to
    the framework's values of the tensors of `proto`, by name, as far as it has them. `files` has
    the external data of `proto`, if it has any.
    """

    proto: onnx.ModelProto = field(repr=False)
    run: Callable[[Arrays], list[NDArray[Any]]] = field(repr=False)
    values: Callable[[Arrays], Mapping[str, NDArray[Any]]] = field(repr=False)
    inputs: tuple[InputSpec, ...] = ()
    files: TemporaryFolder | None = field(default=None, repr=False)

    @property
    def folder(self) -> Path | None:
        """The folder of the external data."""
        return None if self.files is None else self.files.path


@dataclass(frozen=True, slots=True, repr=False)
class Exported(Result):
    """The written model, and its agreement with the framework.

    `batches` are the batch sizes at which outputs of onnxruntime and framework were compared;
    `max_abs_error` is their largest difference. `notes` name outputs that hardly depend on the
    inputs, for which that comparison proves little.
    """

    view: ClassVar[str] = "tracer.analyzers.views.exported"

    path: Path
    framework: str
    nodes: int
    opset: int
    ir_version: int
    dynamic_batch: bool
    batches: tuple[int, ...]
    max_abs_error: float
    notes: tuple[str, ...] = ()

    def headline(self) -> str:
        """The file and its difference from the framework."""
        checked = f"max abs error {self.max_abs_error:.2g} against {self.framework}"
        return f"{self.path}, {plural(self.nodes, 'node')}, {checked}"


class Exporter(Protocol):
    """A framework: the object `exporter` of the package `exporters/<name>/exporter.py`."""

    name: str

    def prepare(self) -> None:
        """Makes the framework importable if it is installed; called before user code runs."""

    def claims(self, model: object) -> bool:
        """Returns whether `model` is of this framework, without importing the framework."""

    def convert(
        self, model: object, inputs: Sequence[InputSpec], options: ExportOptions
    ) -> Conversion:
        """Traces and converts `model`. Raises UsageError or ModelError."""

    def run(self, model: object, arrays: Arrays) -> list[NDArray[Any]]:
        """Returns the outputs of one inference, in the order of the exported graph."""

    def load_weights(self, model: object, path: Path, *, trust: bool) -> None:
        """Fills `model` from a file. Raises InputError if file or weights do not fit."""


def all_exporters() -> list[Exporter]:
    """Returns the exporter of every framework; importing one does not import its framework."""
    return [_exporter(name) for name in frameworks()]


def exporter_of(model: object, framework: str | None = None) -> Exporter:
    """Returns the exporter that claims `model`; with a `framework`, only that one may.

    Raises UsageError for an unknown framework, or an object of no framework.
    """
    names = frameworks()
    if framework is not None and framework not in names:
        raise UsageError(f"no framework '{framework}'", f"There are {', '.join(names)}.")
    for name in [framework] if framework else names:
        exporter = _exporter(name)
        if exporter.claims(model):
            return exporter
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    expected = f"a {framework} model" if framework else f"a model of {' or '.join(names)}"
    raise UsageError(
        f"an object of type {kind} is not {expected}",
        "Name a torch.nn.Module, a torch.export.ExportedProgram or a chainer.Link.",
    )


def _exporter(name: str) -> Exporter:
    exporter: Exporter = importlib.import_module(f"tracer.exporters.{name}.exporter").exporter
    return exporter


def inherits(model: object, module: str, name: str) -> bool:
    """Returns whether a base class of `model` is `module`.`name`, without importing `module`."""
    return any(
        base.__name__ == name and (base.__module__ + ".").startswith(module + ".")
        for base in type(model).__mro__
    )


def check_exists(path: Path) -> None:
    """Raises InputError if there is no such file."""
    if not path.is_file():
        raise InputError(f"{path}: no such file of weights")


def check_fit(path: Path, stored: Shapes, expected: Shapes) -> None:
    """Raises InputError that lists missing and unexpected weights, and shapes that differ."""
    missing = [f"{name} {list(shape)}" for name, shape in expected.items() if name not in stored]
    extra = [f"{name} {list(shape)}" for name, shape in stored.items() if name not in expected]
    wrong = [
        f"{name} is {list(stored[name])}, the model has {list(shape)}"
        for name, shape in expected.items()
        if name in stored and stored[name] != shape
    ]
    faults = []
    of_each = (("missing", missing), ("unexpected", extra), ("of another shape", wrong))
    for fault, names in of_each:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        if names:
            faults.append(f"{len(names)} {fault}: {', '.join(names[:_SHOWN])}{more}")
    if faults:
        raise InputError(
            f"{path}: the weights do not fit the model: {'; '.join(faults)}",
            "Give the weights of this model, or its --arg values.",
        )
