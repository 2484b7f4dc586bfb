"""What was measured on a card, for tests that read it."""

import json

import pytest

from tests.card.parts import COMMITTED


@pytest.fixture(scope="session")
def card():
    """The committed result of a part, by its name; the test is skipped while there is no file."""
    if not COMMITTED.exists():
        pytest.skip("`python -m tests.card -o tests/card/card.json` has not run on a card yet")
    measured = json.loads(COMMITTED.read_text(encoding="utf-8"))["parts"]

    def result(name):
        assert "result" in measured.get(name, {}), f"{name}: {measured.get(name)}"
        return measured[name]["result"]

    return result
