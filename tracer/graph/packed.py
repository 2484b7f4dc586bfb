"""Unpacks a model that is compressed with gzip, as far as a model may be large."""

import zlib
from pathlib import Path

from tracer.errors import ModelError

_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20
_MOST = 1 << 31
"""Bytes of the largest model without external data: protobuf holds no more."""
_FREE, _RATIO = 64 << 20, 20
"""Bytes that any file may unpack to, and beyond them times its own size. Trained weights shrink by
less than half, pruned or quantised ones to a tenth; what shrinks more was made to fill the
memory."""


def is_packed(file: Path) -> bool:
    """Returns whether a file is compressed, by its first bytes, whatever it is called."""
    with file.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def unpacked(file: Path) -> bytes:
    """Returns the content of a compressed file. Raises ModelError if it is broken, or too large."""
    most = min(_MOST, max(_FREE, _RATIO * file.stat().st_size))
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    content = bytearray()
    try:
        with file.open("rb") as stream:
            while not unpacker.eof and (chunk := stream.read(_CHUNK)):
                content += unpacker.decompress(chunk, most + 1 - len(content))
                if len(content) > most:
                    raise ModelError(
                        f"{file}: the gzip file unpacks to far more than its own size",
                        "Unpack it first, if you know what is in it.",
                    )
    except zlib.error as error:
        raise ModelError(f"{file}: a broken gzip file ({error})", "Download it again.") from error
    if not unpacker.eof:
        raise ModelError(f"{file}: a truncated gzip file", "Download it again.")
    return bytes(content)
