"""The arrays that one inference runs on, by input name: random ones, and those of files."""

import math
import re
import struct
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import onnx
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray
from onnx.external_data_helper import uses_external_data

from tracer import limits, shapes
from tracer.errors import InputError, LimitError, UsageError, locate_errors, refusing
from tracer.graph import operators, shape_inference, tensor_type
from tracer.graph.model import Model, Node
from tracer.interpreter.values import to_proto
from tracer.support.files import read_regular, write_atomically
from tracer.support.temporary import is_temporary
from tracer.support.types import type_text
from tracer.text import brief

Feeds: TypeAlias = Mapping[str, Any]
"""An array per model input by name; a list of arrays for a sequence."""
ARRAYS = "arrays of the call"
"""Names inputs and data that a function got as arrays."""
_PASS_ON = frozenset({
    "Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze",
    "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that pass on the values of input 0, and so its role as an index."""
_INDEXED = {
    "Gather": {1: 0}, "GatherBlockQuantized": {1: 0}, "GatherElements": {1: 0}, "GatherND": {1: 0},
    "ScatterElements": {1: 0}, "ScatterND": {1: 0}, "EmbedLayerNormalization": {0: 2, 1: 4},
    "RoiAlign": {2: 0},
}  # fmt: skip
"""By operator, the input that each of its inputs of indices is an index of."""
_LENGTHS = {
    "GRU": (4, "layout"), "LSTM": (4, "layout"), "ReverseSequence": (1, "time_axis"),
    "RNN": (4, "layout"),
}  # fmt: skip
"""By operator, the input that counts the steps of input 0, and the attribute with their axis."""
_BLOCK = 1 << 20
"""Numbers drawn at a time; a multiple of 8, as generators draw bytes by the word."""


@dataclass(frozen=True, slots=True)
class FeedSet:
    """Feeds for one batch size, with notes, and the sizes that were chosen, by dimension."""

    feeds: Feeds = field(repr=False)
    batch: int | None
    notes: tuple[str, ...] = ()
    chosen: Mapping[str, int] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array among the feeds."""
        return {n: tuple(v.shape) for n, v in self.feeds.items() if hasattr(v, "shape")}

    @property
    def types(self) -> dict[str, str]:
        """The type of each of the feeds, as in `float32[1,3]`."""
        return {name: type_text(value) for name, value in self.feeds.items()}


def check_feeds(model: Model, feeds: Feeds) -> None:
    """Raises InputError, naming the input, if `feeds` do not fit the model's declaration."""
    names = [value.name for value in model.inputs]
    missing = [name for name in names if name not in feeds]
    unknown = [name for name in feeds if name not in names]
    if missing or unknown:
        problem = f"{', '.join(missing)} missing" if missing else f"{', '.join(unknown)} unknown"
        raise InputError(
            f"the inputs do not fit {model.name}: {problem}",
            f"The model's inputs are {', '.join(names) or 'none'}.",
        )
    for value in model.inputs:
        declared = tensor_type.from_type_proto(value.type)
        dtype = getattr(feeds[value.name], "dtype", None)
        if declared is None or dtype is None:
            continue
        name = "string" if dtype.kind in "OUST" else dtype.name
        if name != declared.dtype:
            raise InputError(
                f"input '{value.name}' of {model.name} is {declared}, but {name} was fed",
                f"Convert it, for example with array.astype('{declared.dtype}').",
            )
    shape_inference.symbol_sizes(model, FeedSet(feeds, None).shapes)


def nan_notes(feeds: Mapping[str, Any], where: object) -> tuple[str, ...]:
    """Returns a note on each of `feeds`, which are read from `where`, that holds NaN."""
    arrays = {name: value for name, value in feeds.items() if isinstance(value, np.ndarray)}
    return tuple(
        f"input '{brief(name)}' holds NaN in {where}: leave such samples out"
        for name, value in arrays.items()
        if value.dtype.name.startswith(("float", "bfloat")) and np.isnan(value).any()
    )


def random_arrays(model: Model, chosen: shape_inference.Shapes, seed: int) -> Feeds:
    """Returns an array per input from `numpy.random.default_rng(seed)`, in the inputs' order.

    Floats are uniform in [0, 1): in the domain of Sqrt and Log, and free of denormals. Optional
    inputs are absent, None. Raises InputError for other inputs that are not tensors, LimitError
    before it draws more than the limits.
    """
    ranges = _ranges(model, chosen)
    rng = np.random.default_rng(seed)
    budget = limits.in_force()
    feeds: dict[str, Any] = {}
    for value in model.inputs:
        kind = tensor_type.from_type_proto(value.type)
        if value.type.HasField("optional_type"):
            feeds[value.name] = None  # absent
            continue
        if kind is None:
            raise InputError(
                f"input '{value.name}' of {model.name} is not a tensor",
                "Set the inputs by a test_data_set folder: --inputs FOLDER.",
            )
        try:
            budget.tensor(chosen[value.name], kind.dtype)
        except LimitError as error:
            where = f"input '{value.name}' of {model.name}"
            hint = "Set smaller sizes with --batch and --dim, or give --inputs."
            raise LimitError(f"{where}: {error.what}", hint) from error
        within = ranges.get(value.name)
        feeds[value.name] = _draw(rng, kind.dtype, chosen[value.name], within)
        budget.hold(feeds[value.name].nbytes)
    return feeds


def _draw(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], within: range | None
) -> Any:
    """Returns an array of random numbers, converted without a copy of them all."""
    if dtype == "string":
        return np.full(shape, "tracer", dtype=object)
    scalar = tensor_type.numpy_dtype(dtype)
    is_byte, is_integer = dtype in ("int8", "uint8"), dtype.startswith(("int", "uint"))
    if dtype == "bool" or (is_integer and within is None and not is_byte):
        return np.ones(shape, scalar)
    drawn = np.empty(shape, scalar)
    flat = drawn.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        if is_byte:
            info = np.iinfo(dtype)
            numbers: Any = rng.integers(info.min, info.max, part.size, dtype, endpoint=True)
        elif is_integer and within is not None:
            numbers = rng.integers(within.start, within.stop, part.size)
        else:
            numbers = rng.random(part.size)
        part[...] = numbers.astype(scalar)
    return drawn


def _ranges(model: Model, chosen: shape_inference.Shapes) -> dict[str, range]:
    """Returns what inputs of indices and lengths may be: within the smallest table, and all steps.

    A recurrent layer leaves out the steps behind the longest length, whose work is counted. Other
    inputs have no range; their integers are 1, valid as a mask or a count.
    """
    kinds = tensor_type.declared_types(model.inputs)
    indices = [
        name for name, kind in kinds.items() if kind and kind.dtype.startswith(("int", "uint"))
    ]
    if not indices:  # the shapes of a large model take time
        return {}
    types = shapes.infer(model, chosen)
    readers: dict[str, list[tuple[Node, int]]] = defaultdict(list)
    for node in model.nodes:
        for position, name in enumerate(node.inputs):
            readers[name].append((node, position))
    each = {name: [*_fitting_ranges(name, readers, types)] for name in indices}
    return {name: min(some, key=lambda range: range.stop) for name, some in each.items() if some}


def _fitting_ranges(
    name: str, readers: Mapping[str, Sequence[tuple[Node, int]]], types: shape_inference.TensorTypes
) -> Iterator[range]:
    """Yields what fits each node that reads the tensor `name`, or a tensor with its values."""
    visited, waiting = {name}, [name]
    while waiting:
        for node, position in readers.get(waiting.pop(), ()):
            if node.op_type in _PASS_ON and (position == 0 or node.op_type == "Concat"):
                new = set(node.outputs) - visited
                visited |= new
                waiting += new
            counter, of_axis = _LENGTHS.get(node.op_type, (None, "axis"))
            is_length = position == counter
            table = 0 if is_length else _INDEXED.get(node.op_type, {}).get(position)
            if table is None or table >= len(node.inputs):
                continue
            kind = types.of(node.inputs[table], node.scope)
            shape = kind.shape if kind is not None and kind.shape else ()
            axis = operators.integer_attribute(node.proto, of_axis)
            size = shape[axis] if -len(shape) <= axis < len(shape) else None
            if isinstance(size, int) and size > 0:
                yield range(size if is_length else 0, size + is_length)


_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_ENCRYPTED = 1
"""Bit of the flags of a member."""
_NAME_SIZES = 26
"""Bytes of a member's own header before the sizes of its name and extra field (APPNOTE 4.3.7)."""
_FREE, _RATIO = 256 << 20, 200
"""Bytes that any array may unpack to at once, and beyond them times its bytes in the archive."""
_HINT = "Write it with numpy.savez or numpy.savez_compressed."


def read_feeds(model: Model, path: Path) -> Feeds:
    """Returns arrays for the inputs of `model`.

    Raises InputError for a file of no use, LimitError for arrays beyond the limits.
    """
    if not path.exists():
        raise InputError(f"{path}: no such inputs", "Name an .npz file or a test_data_set folder.")
    if path.is_dir():
        sets = test_data_sets(path)
        if not sets:
            raise InputError(f"{path}: holds neither input_0.pb nor a test_data_set folder")
        return _read_protos(sets[0], "input", model.inputs)
    if path.suffix == ".npz":
        shapes = {name: member.shape for name, member in npz_members(path).items()}
        with locate_errors(path):
            shape_inference.symbol_sizes(model, shapes)  # what does not fit is not unpacked
        return read_arrays(path)
    raise InputError(
        f"{path}: inputs are read from .npz files and test_data_set folders only",
        "Write one with numpy.savez(file, input_name=array).",
    )


def read_arrays(path: Path) -> Feeds:
    """Returns the arrays of an `.npz` file, in its order. Raises InputError for any other file."""
    archive = npz_members(path)
    with npz_opened(path, list(archive.values())) as streams:
        pairs = zip(archive.items(), streams, strict=True)
        return {name: member.read_all(stream).copy() for (name, member), stream in pairs}


def describe_source(paths: Sequence[Path]) -> str:
    """Returns the note on where inputs come from."""
    if all(map(is_temporary, paths)):
        return f"inputs are {ARRAYS}"
    return f"inputs are those of {', '.join(map(str, paths))}"


def store_arrays(arrays: Mapping[str, ArrayLike], path: Path) -> Path:
    """Writes arrays by name to the `.npz` file `path`, and returns it. Raises UsageError."""
    with zipfile.ZipFile(path, "w") as archive:  # np.savez has no room for the name `file`
        for name, value in arrays.items():
            array = np.asarray(value)
            if not isinstance(name, str) or array.dtype.hasobject:
                raise UsageError(
                    f"{path.stem} is a mapping, and {name!r} in it is no array of numbers or text",
                    'Give arrays by the names of the inputs: {"x": numpy.zeros((1, 3, 8, 8))}.',
                )
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                npy.write_array(stream, array, allow_pickle=False)
    return path


def read_outputs(model: Model, path: Path) -> Feeds:
    """Returns the expected outputs that a test_data_set folder holds, by the model's names.

    Raises InputError for a file that does not hold a value of the output's type.
    """
    return _read_protos(path, "output", model.graph.output)


def write_test_data(
    folder: Path,
    inputs: Iterable[onnx.ValueInfoProto],
    outputs: Iterable[onnx.ValueInfoProto],
    values: Mapping[str, Any],
) -> None:
    """Writes a test_data_set: `input_K.pb` and `output_K.pb`, of the K-th that has a value."""
    folder.mkdir(exist_ok=True)
    for kind, declared in (("input", inputs), ("output", outputs)):
        for index, value in enumerate(declared):
            if value.name in values:
                proto = to_proto(values[value.name], value.type, value.name)
                write_atomically(folder / f"{kind}_{index}.pb", proto.SerializeToString())


def test_data_sets(folder: Path) -> list[Path]:
    """Returns `folder` if it is a test_data_set, else the test_data_sets inside, by number."""
    return [folder] if any(folder.glob("input_*.pb")) else nested_test_data_sets(folder)


def nested_test_data_sets(folder: Path) -> list[Path]:
    """Returns the test_data_set folders inside `folder`, by number."""
    return sorted(folder.glob("test_data_set_*"), key=numeric_order)


def numeric_order(path: Path) -> tuple[tuple[int, str], ...]:
    """Sorts test_data_set_10 after test_data_set_9."""
    parts = re.split(r"([0-9]+)", path.name)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)


@dataclass(frozen=True, slots=True)
class Member:
    """An array of the archive: name, shape and type from its header, and its bytes packed."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    packed: int

    def read_all(self, stream: IO[bytes]) -> NDArray[Any]:
        """Reads the whole array from a stream past its header."""
        flat = self._read(stream, math.prod(self.shape))
        return flat.reshape(self.shape, order="F" if self.fortran else "C")

    @property
    def is_by_rows(self) -> bool:
        """Whether rows are stored one after another, as they are not in Fortran order."""
        return not self.fortran or len(self.shape) < 2

    def bytes_of(self, rows: int) -> int:
        """The bytes of that many rows."""
        return rows * math.prod(self.shape[1:]) * self.dtype.itemsize

    def rows(self, stream: IO[bytes], size: int, first: int = 0) -> Iterator[NDArray[Any]]:
        """Yields up to `size` rows at a time, from row `first` on, at which the stream stands.

        An array in Fortran order is read at once, from a stream past its header.
        """
        if not self.is_by_rows:
            array = self.read_all(stream)
            yield from (array[i : i + size] for i in range(first, len(array), size))
            return
        row = math.prod(self.shape[1:])
        for start in range(first, self.shape[0], size):
            count = min(size, self.shape[0] - start)
            yield self._read(stream, count * row).reshape(count, *self.shape[1:])

    def _read(self, stream: IO[bytes], items: int) -> NDArray[Any]:
        limits.allow((items,), self.dtype)
        nbytes = items * self.dtype.itemsize
        if nbytes > max(_FREE, _RATIO * self.packed):
            raise LimitError(
                f"'{self.name}' unpacks from {self.packed:,} to {nbytes:,} bytes",
                "Write it with numpy.savez, which does not compress.",
            )
        data = stream.read(nbytes)
        if len(data) != nbytes:
            raise ValueError(f"'{self.name}' ends before its last row")
        return np.frombuffer(data, self.dtype)


def npz_members(path: Path) -> dict[str, Member]:
    """Returns the arrays of an archive by name. Raises InputError for any other file."""
    if not path.is_file():
        raise InputError(f"{path}: no such file", "Name an .npz file or a data set.")
    with _errors_naming(path), zipfile.ZipFile(path) as archive:
        names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
        return {name: _member(archive, name)[0] for name in names}


@contextmanager
def npz_opened(path: Path, members: list[Member], first: int = 0) -> Iterator[list[IO[bytes]]]:
    """Opens a stream per member, past its header and the rows before row `first`.

    Rows of a member that is not compressed are skipped without being read. Raises InputError for a
    broken archive, also while the streams are read.
    """
    with _errors_naming(path), ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(path))
        streams = []
        for member in members:
            stored, stream = _member(archive, member.name)
            if stored != member:
                raise ValueError(f"'{member.name}' has changed")
            stack.enter_context(stream)
            if first and member.is_by_rows:
                info = archive.getinfo(f"{member.name}.npy")
                start = stream.tell() + member.bytes_of(first)
                if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
                    stream.seek(start)  # unpacks what comes before
                elif stream.tell() + member.bytes_of(member.shape[0]) > info.file_size:
                    raise ValueError(f"'{member.name}' ends before its last row")
                else:
                    stream = stack.enter_context(path.open("rb"))
                    stream.seek(info.header_offset + _NAME_SIZES)
                    sizes = struct.unpack("<HH", stream.read(4))
                    stream.seek(info.header_offset + _NAME_SIZES + 4 + sum(sizes) + start)
            streams.append(stream)
        yield streams


def _member(archive: zipfile.ZipFile, name: str) -> tuple[Member, IO[bytes]]:
    stream = archive.open(f"{name}.npy")
    version = npy.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"'{name}' is of .npy version {version}, which is for records")
    shape, fortran, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError(f"'{name}' holds Python objects, which are not read")
    if dtype.itemsize == 0 or any(size < 0 for size in shape):
        raise ValueError(f"'{name}' has an invalid header")
    return Member(name, shape, dtype, fortran, archive.getinfo(f"{name}.npy").compress_size), stream


@contextmanager
def _errors_naming(path: Path) -> Iterator[None]:
    broken = f"{path}: not an .npz file of plain arrays"
    try:
        with refusing(lambda why: InputError(f"{broken} ({why})", _HINT)):
            yield
    except LimitError as error:
        raise LimitError(f"{path}: {error.what}", error.hint) from error


def _read_protos(folder: Path, role: str, declared: Sequence[onnx.ValueInfoProto]) -> Feeds:
    """Returns the values that a test_data_set has: `input_K.pb` is the K-th input."""
    files = ((folder / f"{role}_{index}.pb", value) for index, value in enumerate(declared))
    return {value.name: _read_proto(file, value) for file, value in files if file.exists()}


def _read_proto(file: Path, value: onnx.ValueInfoProto) -> Any:
    readers: dict[str | None, tuple[Any, Callable[[Any], Any]]] = {
        "tensor_type": (onnx.TensorProto, onnx.numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, onnx.numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, onnx.numpy_helper.to_optional),
    }
    kind = value.type.WhichOneof("value")
    if kind not in readers:
        raise InputError(f"{file}: an input of kind {kind} cannot be read from a file")
    proto_type, reader = readers[kind]
    content = read_regular(file)
    role = f"{file.name.partition('_')[0]} '{value.name}'"
    with refusing(lambda why: InputError(f"{file}: does not hold {role} ({why})")):
        proto = proto_type.FromString(content)
        if any(map(uses_external_data, _tensors(proto))):  # these may be anywhere
            raise ValueError("its data are in another file, which is not read")
        return reader(proto)


def _tensors(proto: Any) -> Iterator[onnx.TensorProto]:
    """Yields the tensors of a tensor, sequence, map or optional."""
    if isinstance(proto, onnx.TensorProto):
        yield proto
        return
    for described, value in proto.ListFields():
        if described.message_type is not None:
            for each in [value] if hasattr(value, "ListFields") else value:
                yield from _tensors(each)
