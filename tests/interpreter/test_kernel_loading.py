"""Compiled code is kept as long as no source of any kernel changes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tracer


def _cache_folders(folder):
    """Folders of compiled code after a process of a copy of the package has used a kernel."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    program = "from tracer.interpreter.kernel_loading import loaded\n"
    program += "print(loaded('image_layout').__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=folder, capture_output=True, text=True
    )
    assert str(folder) in done.stdout, done.stderr
    kernels = folder / "tracer" / "interpreter" / "kernels"
    return {path.name for path in (kernels / "__pycache__").glob("kernels-*")}


def test_an_edit_of_what_kernels_share_compiles_them_anew_and_drops_the_old_code(
    tmp_path,
):
    package = Path(tracer.__file__).parent
    shutil.copytree(package, tmp_path / "tracer", ignore=shutil.ignore_patterns("__pycache__"))
    first = _cache_folders(tmp_path)
    assert len(first) == 1
    assert _cache_folders(tmp_path) == first
    with (tmp_path / "tracer/interpreter/kernels/task_arguments.py").open("a") as file:
        file.write("# another line\n")
    second = _cache_folders(tmp_path)
    assert len(second) == 1
    assert second != first
