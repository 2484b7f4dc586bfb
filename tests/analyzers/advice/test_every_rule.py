"""Each rule of advice has its entry in the documentation, threads, and tests of both cases."""

import pkgutil
import re
from pathlib import Path

import pytest

from analyzers import advice

RULES = [m.name for m in pkgutil.iter_modules(advice.__path__) if not m.name.startswith("_")]
TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("test_rules*.py"))
PAGE = Path("docs/roofline.md").read_text()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_tested_where_it_applies_and_where_it_does_not(rule):
    assert re.search(rf"""\["{rule}"\]|get\("{rule}"\)""", TESTS), "no test where it applies"
    absent = rf"""assert "{rule}" not in|assert not {{[^}}]*"{rule}"[^}}]*}} &|\("{rule}" in found\) is"""
    assert re.search(absent, TESTS), "no test where it does not apply"


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_an_entry_with_the_threads_that_it_comes_from(rule):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{rule}` |")]
    assert re.search(r"\]\(https://github\.com/[^)]+/(issues|pull)/\d+\)", row), row
