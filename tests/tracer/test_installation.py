"""An editable install is found from every folder, and hides nothing of the user's."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("tracer", "analyzers", "exporters")
PATH = "import site, sys; site.addsitedir(sys.argv.pop(1)); "
"""What Python does with the folder of packages at its start."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with a clone called `tracer`, and the folder of packages of its editable install."""
    if not find_spec("setuptools"):  # an import would replace distutils, which is in use by now
        pytest.skip("setuptools is not installed")
    folder = tmp_path_factory.mktemp("above")
    clone = folder / "tracer"
    clone.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    for name in (*PACKAGES, "models"):
        (clone / name).symlink_to(ROOT / name)
    build = "from setuptools import build_meta; print(build_meta.build_editable('..'))"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=clone, capture_output=True, text=True, check=True
    )
    packages = folder / "packages"
    with zipfile.ZipFile(folder / done.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(packages)
    return folder, packages


def python(installed, code, folder, *arguments):
    """Run `code` in `folder`, as `python -c` of an environment with the install does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", PATH + code, installed, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("below", [".", "tracer", "tracer/tracer"])
def test_tracer_runs_from_above_and_inside_a_clone_of_its_name(installed, below):
    above, packages = installed
    code = "import runpy; runpy.run_module('tracer', run_name='__main__', alter_sys=True)"
    done = python(packages, code, above / below, "--version")
    assert done.returncode == 0, done.stderr
    assert "version" in done.stdout
    code = "import tracer, tracer.analyzers, tracer.exporters; print(tracer.__file__)"
    assert python(packages, code, above / below).stdout.strip().endswith("tracer/__init__.py")


def test_a_folder_of_the_users_is_not_hidden_by_one_of_the_clone(installed, tmp_path):
    _, packages = installed
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "own.py").write_text("NAME = 'own'\n")
    done = python(packages, "from models.own import NAME; print(NAME)", tmp_path)
    assert done.stdout == "own\n", done.stderr
