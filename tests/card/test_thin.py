"""What `tests.card.thin` makes zero, in a library that is built here byte by byte."""

import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.card import thin

CAPI = "onnxruntime/capi/"


def _elf(sections):
    """A 64-bit ELF file with these sections: an empty one, theirs, and that of their names."""
    content, headers, names = b"", [struct.pack("<IIQQQQ24x", *[0] * 6)], b"\0"
    for name, data in [*sections.items(), (".shstrtab", None)]:
        if data is None:
            data = names + name.encode() + b"\0"
        headers.append(struct.pack("<IIQQQQ24x", len(names), 1, 0, 0, 64 + len(content), len(data)))
        names += name.encode() + b"\0"
        content += data + bytes(-len(data) % 8)
    count = len(headers)
    table = struct.pack("<Q10xHHH", 64 + len(content), 64, count, count - 1)
    return b"\x7fELF" + bytes(36) + table + content + b"".join(headers)


def _module(card, kernels, compress=False, kind=2):
    elf = used = _elf({f".text.{name}": b"\x90" * size for name, size in kernels.items()})
    if compress:
        used = subprocess.run(["zstd", "-cq"], input=elf, capture_output=True, check=True).stdout
    reserved = used + bytes(-len(used) % 16)
    length = len(used) if compress else 0
    header = struct.pack("<HHIQI8xI32x", kind, 0x101, 64, len(reserved), length, card)
    return header + reserved


def _library(*images):
    fat = b""
    for modules in images:
        body = b"".join(modules)
        fat += struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body + bytes(24)
    return bytearray(_elf({".text": b"host code", ".nv_fatbin": fat, ".data": b"x" * 40}))


def test_the_card_and_what_is_used_stay():
    used, unused, mixed = {"add": 40}, {"flash_attention": 64}, {"add": 64, "flash_attention": 40}
    library = _library(
        [_module(80, used), _module(90, used), _module(90, used, kind=1)],
        [_module(90, unused)],
        [_module(90, mixed)],
    )
    before = bytes(library)
    modules = list(thin.modules_of(before))
    assert [module.card for module in modules] == [80, 90, 90, 90]  # kind 1 is PTX, not compiled
    assert thin.kernel_sizes(thin.elf_of(before, modules[3])) == mixed
    kept, total = thin.thin(library, 90, unused=("flash",))
    assert kept == modules[1].size + modules[3].size and total == sum(m.size for m in modules)
    changed = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(library, np.uint8))
    zeros = [range(m.start, m.start + m.size) for m in (modules[0], modules[2])]
    assert len(library) == len(before) and all(any(i in z for z in zeros) for i in changed)
    assert not any(any(library[z.start : z.stop]) for z in zeros)


def test_compressed_modules_are_read():
    try:
        module = _module(90, {"matrix_product": 5000}, compress=True)
    except FileNotFoundError:
        pytest.skip("the program zstd is not installed")
    library = _library([module])
    (only,) = thin.modules_of(library)
    assert only.size < 2000 and thin.kernel_sizes(thin.elf_of(library, only)) == {
        "matrix_product": 5000
    }


def test_an_unknown_compression_is_refused():
    library = _library([_module(90, {"k": 8})])
    (module,) = thin.modules_of(library)
    library[module.start : module.start + 4] = b"LZ4?"
    with pytest.raises(ValueError, match=r"neither ELF nor zstd: b'LZ4\?'"):
        thin.thin(library, 90)


def test_a_package_without_what_python_does_not_load(tmp_path):
    wheel = tmp_path / "onnxruntime_gpu-1-cp312.whl"
    library = _library([_module(80, {"a": 8}), _module(90, {"a": 8})])
    with zipfile.ZipFile(wheel, "w") as whole:
        whole.writestr(CAPI + thin.PROVIDER, bytes(library))
        whole.writestr("onnxruntime/__init__.py", "")
        whole.writestr(CAPI + "libonnxruntime.so.1.2.3", b"for C")
        whole.writestr(CAPI + "libonnxruntime_providers_tensorrt.so", b"")
        whole.writestr("onnxruntime/transformers/optimizer.py", "")
    thin.main([str(wheel), str(tmp_path / "out" / "thin.tar.xz"), "--card", "90"])
    with tarfile.open(tmp_path / "out" / "thin.tar.xz") as thinned:
        assert thinned.getnames() == [CAPI + thin.PROVIDER, "onnxruntime/__init__.py"]
        after = thinned.extractfile(CAPI + thin.PROVIDER).read()
    first, second = thin.modules_of(library)
    assert not any(after[first.start : first.start + first.size])
    assert thin.elf_of(after, second) == thin.elf_of(library, second)


def test_sections_of_a_real_library():
    """The names and sizes that `readelf` prints."""
    library = onnxruntime.capi.onnxruntime_pybind11_state.__file__
    try:
        command = ["readelf", "--wide", "--section-headers", library]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("the program readelf is not installed")
    sections = thin.sections_of(Path(library).read_bytes())
    (line,) = (line for line in lines.splitlines() if " .rodata " in line)
    words = line.partition(".rodata")[2].split()
    assert sections[".rodata"] == (int(words[2], 16), int(words[3], 16))
