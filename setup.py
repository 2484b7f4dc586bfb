"""Builds what pyproject.toml describes; in a wheel, scripts and styles of reports are minified."""

import re
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PAGE = "tracer/analyzers/views/report/page"
LINK = re.compile(r"(!?)\[([^]]*)\]\((?!https?:|#)([^)]+)\)")
"""A picture or a link to a file of the repository, in Markdown."""


class MinifyingBuild(build_py):
    """Takes comments and indentation out of the page's files, but never out of a checkout's."""

    def run(self) -> None:
        """Copies packages and their data, and minifies the copies."""
        super().run()
        if self.editable_mode:
            return
        import rcssmin  # not needed to install a checkout
        import rjsmin

        for suffix, minify in ((".js", rjsmin.jsmin), (".css", rcssmin.cssmin)):
            for file in Path(self.build_lib, PAGE).rglob(f"*{suffix}"):
                file.write_text(minify(file.read_text("utf-8")), "utf-8")


def description() -> str:
    """Returns README.md for those who have it without the repository.

    Its links lead to the `Repository` of pyproject.toml; where none is named, they are plain text,
    and pictures are left out.
    """
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    home = project.get("urls", {}).get("Repository")

    def absolute(link: re.Match[str]) -> str:
        picture, text, path = link.groups()
        if not home:
            return "" if picture else text
        return f"{picture}[{text}]({home}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return LINK.sub(absolute, Path("README.md").read_text("utf-8"))


setup(
    cmdclass={"build_py": MinifyingBuild},
    long_description=description(),
    long_description_content_type="text/markdown",
)
