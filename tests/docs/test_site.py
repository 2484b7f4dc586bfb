"""The documentation is a site without broken links."""

import subprocess
import sys

import pytest

from tests.docs import commands_page
from tests.docs.words import LIMIT, LIMIT_OF_README, ROOT, words


@pytest.mark.nightly
@pytest.mark.needs("mkdocs")
def test_the_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'href="start/"' in home  # README.md, whose links begin with docs/
    assert (tmp_path / "repo" / "benchmarks" / "index.html").exists()
    assert (tmp_path / "search" / "search_index.json").stat().st_size > 100_000


def test_the_page_of_commands_has_the_options_of_today():
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == commands_page.page()


def test_pages_that_are_written_by_hand_stay_short():
    """Whoever adds words takes others away: `python -m tests.docs.words` lists the pages."""
    assert words()["README.md"] <= LIMIT_OF_README
    assert sum(words().values()) <= LIMIT
