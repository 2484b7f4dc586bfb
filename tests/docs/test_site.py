"""The documentation is a site without broken links."""

import json
import re
import subprocess
import sys

import pytest

import tracer
from tests.docs import commands_page, notebook
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
    for page in tmp_path.rglob("index.html"):  # mkdocs looks at pictures in Markdown alone
        for picture in re.findall(r'<img [^>]*src="([^":]+)"', page.read_text(encoding="utf-8")):
            assert (page.parent / picture).exists(), f"{page}: {picture}"


def test_the_page_of_commands_has_the_options_of_today():
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == commands_page.page()


def test_pages_that_are_written_by_hand_stay_short():
    """Whoever adds words takes others away: `python -m tests.docs.words` lists the pages."""
    assert words()["README.md"] <= LIMIT_OF_README
    assert sum(words().values()) <= LIMIT


def test_the_reference_of_python_has_all_names():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    listed = re.search(r"members: \[(.*)\]", page)[1].split(", ")
    assert listed == [name for name in tracer.__all__ if name[0].isupper()]


def test_the_notebook_has_the_cells_of_its_source():
    cells = json.loads(notebook.NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert ["".join(cell["source"]) for cell in cells] == [cell.strip() for cell in notebook.CELLS]


@pytest.mark.nightly
@pytest.mark.needs("sklearn")
def test_the_notebook_runs():
    shown = [cell.outputs[0].data for cell in notebook.written().cells if cell.cell_type == "code"]
    assert all("text/html" in data or "image/png" in data for data in shown[:-1])
    assert "resnet21.trace: no such" in shown[-1]["text/plain"]
