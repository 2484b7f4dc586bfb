"""A new overflow mode fails type checking in every file that would forget it."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = "tracer/accumulators/spec/accumulator.py"
FILES = (SPEC, "tracer/accumulators/engine/oracle.py", "tracer/accumulators/engine/programs.py")


def check_types(folder):
    options = ("--follow-imports=skip", "--ignore-missing-imports", "--explicit-package-bases")
    command = [sys.executable, "-m", "mypy", *options]
    run = subprocess.run([*command, *FILES], cwd=folder, capture_output=True, text=True)
    return run.stdout


def test_a_forgotten_overflow_mode_fails_type_checking(tmp_path):
    for path in FILES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    assert "assert_never" not in check_types(tmp_path)
    spec = tmp_path / SPEC
    modes = '"wrap", "zero", "error"]'
    assert modes in spec.read_text()
    spec.write_text(spec.read_text().replace(modes, '"wrap", "zero", "error", "mirror"]'))
    errors = [line for line in check_types(tmp_path).splitlines() if "assert_never" in line]
    assert {line.split(":")[0] for line in errors} == set(FILES)
    assert all("mirror" in line for line in errors)
