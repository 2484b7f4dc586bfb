"""Builds what pyproject.toml describes; in a wheel, scripts and styles of reports are minified."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PAGE = "tracer/analyzers/views/report/page"


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


setup(cmdclass={"build_py": MinifyingBuild})
