"""Every example of the documentation runs, and the outputs that pages show are still printed."""

import re

import pytest

from tests.docs.examples import ROOT, examples, folder_of_examples

PAGES = [
    page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if examples(page)
]
_MEASURED = ("note: ", "- ")
"""How lines begin that depend on the machine: notes and advice."""


def words(text: str) -> set[str]:
    """The words of an output that are the same on every machine: no figures, nothing cut."""
    lines = (line for line in text.splitlines() if not line.strip().startswith(_MEASURED))
    tokens = (token.strip(".,:;()") for line in lines for token in line.split())
    return {token for token in tokens if re.fullmatch(r"[^\W\d_][^\d…]*", token)}


@pytest.mark.needs("torch", "chainer", "sklearn", "matplotlib")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_and_print_what_it_shows(page, tmp_path):
    folder = folder_of_examples(tmp_path)
    for example in examples(page):
        result = example.run(folder)
        assert result.returncode == 0, f"{example.code}\n{result.stderr}"
        assert "Traceback" not in result.stderr
        missing = words(example.shown) - words(result.stdout)
        assert not missing, f"{example.code}: the page shows {sorted(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
