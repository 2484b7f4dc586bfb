"""A temporary copy of the packages, to which a drill adds files."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("tracer", "analyzers", "exporters")


@dataclass(frozen=True)
class Copy:
    """The packages in a folder of their own, where a drill may add and edit."""

    root: Path
    compiled: Path

    def add(self, path: str, text: str) -> None:
        """Add a file that must not exist."""
        file = self.root / path
        assert not file.exists(), path
        file.parent.mkdir(exist_ok=True)
        file.write_text(dedent(text))

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that the file holds exactly once."""
        file = self.root / path
        text = file.read_text()
        assert text.count(old) == 1, (path, text.count(old))
        file.write_text(text.replace(old, new))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python with the packages of the copy."""
        environment = {
            **os.environ, "PYTHONPATH": str(self.root), "COLUMNS": "160",
            "NUMBA_CACHE_DIR": str(self.compiled),
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
        )

    def python(self, code: str) -> str:
        """Run code that must succeed, and return what it prints."""
        result = self.run("-c", dedent(code))
        assert result.returncode == 0, result.stderr
        return result.stdout

    def tracer(self, *arguments: str) -> str:
        """Run a command that must succeed, and return what it prints."""
        result = self.run("-m", "tracer", *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Kernels that no drill edits are compiled once for all of them."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def copy(tmp_path, compiled):
    ignored = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, symlinks=True, ignore=ignored)
    return Copy(tmp_path, compiled)


@pytest.fixture
def repository():
    return ROOT
