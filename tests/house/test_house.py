"""The measures of the house count what they say, and the house is within its budget."""

import subprocess
import sys
import tomllib

import pytest

from tests.house.__main__ import ROOT, excesses
from tests.house.measures import House

BUDGET = """
[lines]
"tracer/a" = 30
[grain]
product = 30
product_and_beside = 30
files = 3
drawers = 0
named_once_percent = 100
imports_percent = 100
bare_names = 1
long_files = 0
long_functions = 0
wide_functions = 0
options_beside = 0
"""


@pytest.fixture
def root(tmp_path):
    """A house of three files: one is read by one other, and has every fault once."""
    folder = tmp_path / "tracer" / "a"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "drawer.py").write_text(
        "import cloup\n\n\ndef told(a, b, c, d, e, f, g, h, i):\n    return _once(a)\n\n\n"
        "def _once(a):\n    return cloup.option(a)\n"
    )
    (folder / "chest.py").write_text("from tracer.a.drawer import told\n\nVALUE = told\n")
    (tmp_path / "budget.toml").write_text(BUDGET)
    return tmp_path


def test_each_measure_finds_its_fault(root):
    house = House(root)
    assert house.lines_of_packages() == {"tracer/a": 12}
    assert house.drawers() == ["tracer/a/drawer.py"]
    assert house.named_once() == ["tracer/a/drawer.py:_once"]
    assert house.bare_names() == ["tracer/a/drawer.py:told"]
    assert house.wide_functions(8) == ["tracer/a/drawer.py:told"]
    assert house.options_beside() == ["tracer/a/drawer.py"]
    assert house.long_functions(1) == ["tracer/a/drawer.py:told", "tracer/a/drawer.py:_once"]
    assert (house.functions(), house.import_lines()) == (2, 2)


def test_what_is_above_the_budget_is_named(root):
    said = "\n".join(excesses(root))
    assert "drawers: 1, allowed 0:\n    tracer/a/drawer.py" in said
    assert "options_beside: 1, allowed 0:" in said and "wide_functions: 1, allowed 0:" in said
    assert "bare_names" not in said and "lines of" not in said


def test_a_package_without_a_budget_is_above_it(root):
    (root / "budget.toml").write_text(BUDGET.replace('"tracer/a" = 30', ""))
    assert "lines of tracer/a: 12, allowed 0" in excesses(root)


@pytest.mark.one_in(2)
@pytest.mark.needs("sklearn")
@pytest.mark.parametrize(
    "call", ["profile", "count", pytest.param("what_if", marks=pytest.mark.nightly)]
)
def test_a_call_enters_few_files(call):
    command = [sys.executable, "-m", "tests.house.walks", call]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    entered = ended.stdout.splitlines()
    limit = tomllib.loads((ROOT / "budget.toml").read_text("utf-8"))["walks"][call]
    assert "api/" in ended.stdout and len(entered) <= limit, ended.stdout
