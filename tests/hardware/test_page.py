"""docs/hardware.md has the presets of the registry."""

from pathlib import Path

from tests.hardware import page
from tracer.accumulators import hardware


def test_the_page_has_the_presets_of_today():
    text = Path("docs/hardware.md").read_text(encoding="utf-8")
    assert page.updated(text) == text
    assert all(f"| `{name}` |" in text for name in hardware.presets())
