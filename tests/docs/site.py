"""Hooks of mkdocs: README.md is the home page, and links of pages may leave docs/.

A page links to files as they lie in the repository, so its links work there as well. A file outside
of docs/ that a page links to becomes a page of the site, `repo/PATH`: Markdown as it is, source
code as a block.

Commands of gallery.md run once, and the reports that they write are in the site, each below its
command. Remove build/gallery to have them written anew.
"""

import json
import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.docs.examples import examples, folder_of_examples

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GALLERY = "gallery.md"
REPORTS = ROOT / "build" / "gallery"
_LINK = re.compile(r"""(\]\(|\b(?:src|href)=")([^)"\s#:]+)""")
_LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml"}
_REPORT = re.compile(r"^\$ .* -o (\w+)\.html\n```\n", re.MULTILINE)
_NO_SEARCH = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the home page, and all that pages link to outside of docs/."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    files.append(File.generated(config, "notebook.md", content=_notebook_page()))
    sources = [_source(file.src_uri) for file in files.documentation_pages()]
    known: set[Path] = set()
    while sources:
        page = sources.pop()
        outside = {target for target in _targets(page) if _is_outside(target)} - known
        for target in sorted(outside):
            content = _NO_SEARCH + _as_markdown(target)
            files.append(File.generated(config, _uri(target), content=content))
            sources += [target] if target.suffix == ".md" else []
        known |= outside
    for report in _reports():
        files.append(File.generated(config, f"gallery/{report.name}", abs_src_path=str(report)))
    return files


def _reports() -> list[Path]:
    """The reports that the commands of the gallery write; runs those that did not run yet."""
    if not REPORTS.exists():
        REPORTS.mkdir(parents=True)
        folder_of_examples(REPORTS)
    for example in examples(DOCS / GALLERY):
        reports = [name for name in example.arguments if name.endswith(".html")]
        if reports and not all((REPORTS / name).exists() for name in reports):
            done = example.run(REPORTS)
            if done.returncode:
                raise PluginError(f"{example.code}\n{done.stderr}")
    return sorted(REPORTS.glob("*.html"))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to where their targets are in the site."""
    uri = page.file.src_uri
    folder = _source(uri).parent

    def lead(link: re.Match[str]) -> str:
        target = _resolved(folder, link[2])
        if not target.exists() or not target.is_relative_to(ROOT):
            return link[0]
        is_html = link[1].endswith('"')  # which nobody adapts to where the page is shown
        start = page.url if is_html else posixpath.dirname(uri)
        return link[1] + posixpath.relpath(_uri(target), start or ".")

    if uri == GALLERY:
        markdown = _REPORT.sub(r"\g<0>\n[Open this report](gallery/\1.html)\n", markdown)
    return _LINK.sub(lead, markdown)


def _notebook_page() -> str:
    """docs/notebook.ipynb as a page: its cells, and the HTML or the text that each shows."""
    parts = ['<a href="../notebook.ipynb" download>Download this notebook</a>']
    for cell in json.loads((DOCS / "notebook.ipynb").read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            shown = output["data"].get("text/html")
            if picture := output["data"].get("image/png"):
                shown = f'<img alt="the chart" src="data:image/png;base64,{picture.strip()}">'
            text = "".join(output["data"]["text/plain"])
            parts.append(f'<div class="output" markdown="0">\n{"".join(shown)}\n</div>' if shown
                         else f"```text\n{text}\n```")  # fmt: skip
    return "\n\n".join([parts[1], parts[0], *parts[2:]])


def _targets(page: Path) -> set[Path]:
    """What exists of the files and folders that a page links to."""
    links = _LINK.findall(page.read_text()) if page.suffix == ".md" else []
    targets = {_resolved(page.parent, target) for _, target in links}
    return {target for target in targets if target.exists()}


def _is_outside(target: Path) -> bool:
    return target.is_relative_to(ROOT) and not target.is_relative_to(DOCS) and (
        target != ROOT / "README.md"
    )  # fmt: skip


def _resolved(folder: Path, target: str) -> Path:
    """The path that a link names; links of the file system stay, as tracer/analyzers is one."""
    return Path(os.path.normpath(folder / target))


def _source(uri: str) -> Path:
    """The file in the repository that a page of the site comes from."""
    if uri == "index.md":
        return ROOT / "README.md"
    if uri.startswith("repo/"):
        path = ROOT / uri.removeprefix("repo/")
        return path if path.exists() else path.with_suffix("")
    return DOCS / uri.replace("notebook.md", "notebook.ipynb")


def _uri(target: Path) -> str:
    """Where a file of the repository is in the site."""
    if target == ROOT / "README.md":
        return "index.md"
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix().replace(".ipynb", ".md")
    name = f"repo/{target.relative_to(ROOT).as_posix()}"
    return name if target.suffix == ".md" or target.suffix == ".png" else f"{name}.md"


def _as_markdown(target: Path) -> str:
    if target.suffix == ".md":
        return target.read_text()
    title = f"# {target.relative_to(ROOT).as_posix()}\n\n"
    if target.is_dir():
        return title + "\n".join(f"- `{child.name}`" for child in sorted(target.iterdir()))
    return f"{title}```{_LANGUAGES.get(target.suffix, 'text')}\n{target.read_text()}\n```\n"
