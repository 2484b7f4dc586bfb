"""`python -m tests.card.thin WHEEL OUTPUT.tar.xz`: onnxruntime-gpu for one kind of card.

The library of the CUDA provider holds its kernels once for each kind of card, in *fat binaries*: an
image of 16 bytes of header, then entries of a header of 64 bytes and a compressed module each. The
modules of other kinds, and those of kernels that none of the networks of `models/` uses, become
zeros; headers stay, and CUDA reads a module only when a kernel of it is launched. Left out are the
library for C, TensorRT, and tools. Needs the program `zstd`.
"""

import argparse
import io
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROVIDER = "libonnxruntime_providers_cuda.so"
UNUSED = (
    "5flash", "kernel_mha", "masked_multihead", "Paged", "BeamSearch", "LinearAttention",
    "gated_delta", "parse", "Csa", "Moe", "moe", "MoeFC", "fpA_intB", "GemmUniversal", "Fp4",
    "deep_gemm",
)  # fmt: skip
"""Parts of names of kernels for large language models, and for fp4, fp8, int4 and half floats."""
_LEFT_OUT = ("onnxruntime/transformers/", "onnxruntime/tools/", "libonnxruntime.so",
             "providers_tensorrt", "ThirdPartyNotices", "onnxruntime/datasets/")  # fmt: skip
_MAGIC, _ELF_KIND, _ZSTD = 0xBA55ED50, 2, b"(\xb5/\xfd"


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a fat binary: its card (90 is sm_90), and where its bytes lie in the file.

    `size` bytes from `start` on are reserved, of which `compressed` are in use (0: all of them).
    """

    card: int
    start: int
    size: int
    compressed: int


def main(arguments=None):
    """Writes the thinned package, and prints what is kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.card.thin", description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--card", type=int, default=90, help="compute capability, times ten")
    options = parser.parse_args(arguments)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(options.wheel) as wheel, tarfile.open(options.output, "w:xz") as thinned:
        for name in wheel.namelist():
            if name.endswith("/") or any(part in name for part in _LEFT_OUT):
                continue
            content = bytearray(wheel.read(name))
            if name.endswith(PROVIDER):
                kept, total = thin(content, options.card)
                print(f"{name}: {kept:,} bytes of modules of {total:,}", flush=True)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if ".so" in name else 0o644
            thinned.addfile(entry, io.BytesIO(content))
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


def thin(library: bytearray, card: int, unused: tuple[str, ...] = UNUSED) -> tuple[int, int]:
    """Fills modules that are not needed with zeros, in place; returns bytes kept, and of all.

    A module stays if it is of the card and the largest of its kernels has no name of `unused`.
    """
    kept = total = 0
    for module in modules_of(library):
        total += module.size
        if module.card == card:
            sizes = kernel_sizes(elf_of(library, module))
            largest = max(sizes, key=sizes.__getitem__, default="")
            if not any(part in largest for part in unused):
                kept += module.size
                continue
        library[module.start : module.start + module.size] = bytes(module.size)
    return kept, total


def modules_of(library: bytes | bytearray) -> Iterator[Module]:
    """Yields the compiled modules in the fat binaries of a shared library."""
    at, size = sections_of(library)[".nv_fatbin"]
    end = at + size
    while at + 16 <= end:
        magic, _, header, length = struct.unpack_from("<IHHQ", library, at)
        if magic != _MAGIC:  # images begin at multiples of 8
            at += 8
            continue
        entry, at = at + header, at + header + length
        while entry < at:
            kind, _, header, size, compressed = struct.unpack_from("<HHIQI", library, entry)
            (card,) = struct.unpack_from("<I", library, entry + 28)
            if kind == _ELF_KIND:
                yield Module(card, entry + header, size, compressed)
            entry += header + size


def elf_of(library: bytes | bytearray, module: Module) -> bytes:
    """Returns the module as the card gets it; raises `ValueError` for an unknown compression."""
    content = bytes(library[module.start : module.start + (module.compressed or module.size)])
    if content.startswith(_ZSTD):
        command = ["zstd", "--decompress", "--stdout", "--quiet"]
        return subprocess.run(command, input=content, capture_output=True, check=True).stdout
    if content.startswith(b"\x7fELF"):
        return content
    raise ValueError(f"a module at {module.start} is neither ELF nor zstd: {content[:4]!r}")


def kernel_sizes(elf: bytes) -> dict[str, int]:
    """Returns the bytes of code of each kernel of a module."""
    return {
        name.removeprefix(".text."): size
        for name, (_, size) in sections_of(elf).items()
        if name.startswith(".text.")
    }


def sections_of(elf: bytes | bytearray) -> dict[str, tuple[int, int]]:
    """Returns where each section of a 64-bit ELF file begins, and its bytes."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    length, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + length * each) for each in range(count)]
    texts = headers[names][4]
    return {
        elf[texts + header[0] : elf.index(b"\0", texts + header[0])].decode(): header[4:6]
        for header in headers
    }


if __name__ == "__main__":
    main()
