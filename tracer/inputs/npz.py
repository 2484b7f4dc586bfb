"""Reads the members of an .npz file row by row, so that it need not fit into memory."""

import math
import struct
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tracer import limits
from tracer.errors import InputError, LimitError, refusing

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_ENCRYPTED = 1
"""Bit of the flags of a member."""
_NAME_SIZES = 26
"""Bytes of a member's own header before the sizes of its name and extra field (APPNOTE 4.3.7)."""
_FREE, _RATIO = 256 << 20, 200
"""Bytes that any array may unpack to at once, and beyond them times its bytes in the archive."""
_HINT = "Write it with numpy.savez or numpy.savez_compressed."


@dataclass(frozen=True, slots=True)
class Member:
    """An array of the archive: name, shape and type from its header, and its bytes packed."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    packed: int

    def whole(self, stream: IO[bytes]) -> NDArray[Any]:
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
            array = self.whole(stream)
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


def members(path: Path) -> dict[str, Member]:
    """Returns the arrays of an archive by name. Raises InputError for any other file."""
    if not path.is_file():
        raise InputError(f"{path}: no such file", "Name an .npz file or a data set.")
    with _errors_naming(path), zipfile.ZipFile(path) as archive:
        return {name: _member(archive, name)[0] for name in _names(archive)}


@contextmanager
def opened(path: Path, members: list[Member], first: int = 0) -> Iterator[list[IO[bytes]]]:
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
                file = stack.enter_context(path.open("rb"))
                stream = _past_rows(archive, file, member, stream, first)
            streams.append(stream)
        yield streams


def _past_rows(
    archive: zipfile.ZipFile, file: IO[bytes], member: Member, stream: IO[bytes], first: int
) -> IO[bytes]:
    """Returns a stream at row `first` of a member: `file`, or `stream`, if it is compressed."""
    info = archive.getinfo(f"{member.name}.npy")
    start = stream.tell() + member.bytes_of(first)
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
        stream.seek(start)  # unpacks what comes before
        return stream
    if stream.tell() + member.bytes_of(member.shape[0]) > info.file_size:
        raise ValueError(f"'{member.name}' ends before its last row")
    file.seek(info.header_offset + _NAME_SIZES)
    sizes = struct.unpack("<HH", file.read(4))
    file.seek(info.header_offset + _NAME_SIZES + 4 + sum(sizes) + start)
    return file


def _names(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


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
