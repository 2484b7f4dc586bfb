"""Each rule of advice has an entry in the documentation."""

import re
from pathlib import Path

import pytest

from tracer.analyzers import advice

RULES = [rule.__name__ for rule in advice.rules()]
PAGE = Path("docs/advice.md").read_text()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_an_entry_with_the_threads_that_it_comes_from(rule):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{rule}` |")]
    assert re.search(r"\]\(https://github\.com/[^)]+/(issues|pull)/\d+\)", row), row
