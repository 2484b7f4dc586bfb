"""Releases that were never published: the installed runtime under another version."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnxruntime

from tracer.executors.releases import Release

UNUSED = shutil.ignore_patterns("__pycache__", "tools", "transformers", "quantization")


def plant_release(version, code="", package=onnxruntime):
    """Makes a release of an installed package, with further `code`, and returns its folder."""
    name = package.__name__
    folder = Release(version, name).folder
    shutil.copytree(
        Path(package.__file__).parent,
        folder / name,
        copy_function=lambda source, target: Path(target).symlink_to(source),  # they are large
        ignore=UNUSED if package is onnxruntime else None,
    )
    start = folder / name / "__init__.py"
    text = start.read_text()
    start.unlink()
    start.write_text(f"{text}\n__version__ = {version!r}\n{code}")
    dist = folder / f"{name}-{version}.dist-info"
    dist.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (dist / "METADATA").write_text(metadata)
    (folder / "release.json").write_text("{}")
    return folder


def run_script(path, *folders):
    """The exit code of a script in a process of its own, in another release where one is named."""
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, path]
    return subprocess.run(command, capture_output=True, check=False, env=around).returncode
