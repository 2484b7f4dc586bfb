"""Releases that were never published: the installed onnxruntime under another version."""

import shutil
from pathlib import Path

import onnxruntime

from tracer.executors.releases import Release

UNUSED = shutil.ignore_patterns("__pycache__", "tools", "transformers", "quantization")


def plant_release(version, code=""):
    """Makes a release of the installed onnxruntime, with further `code`, and returns its folder."""
    folder = Release(version).folder
    shutil.copytree(
        Path(onnxruntime.__file__).parent,
        folder / "onnxruntime",
        copy_function=lambda source, target: Path(target).symlink_to(source),  # they are large
        ignore=UNUSED,
    )
    start = folder / "onnxruntime/__init__.py"
    text = start.read_text()
    start.unlink()
    start.write_text(f"{text}\n__version__ = {version!r}\n{code}")
    dist = folder / f"onnxruntime-{version}.dist-info"
    dist.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: onnxruntime\nVersion: {version}\n"
    (dist / "METADATA").write_text(metadata)
    (folder / "release.json").write_text("{}")
    return folder
