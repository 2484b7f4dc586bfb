"""The file of a report: the template with its styles, scripts and data, and a policy for them."""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources

import rcssmin
import rjsmin

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.html import html
from tracer.analyzers.views.report.content import Content
from tracer.analyzers.views.report.encoding import encoded
from tracer.text import line

_STATIC = ViewOptions(top=30)
"""Rows that readers without scripts see: little beside the data of large models."""

_SHEETS = ("style", "pictures")

_PLACE = re.compile(r"\{\{(\w+)\}\}")
_ROOT = resources.files(__package__).joinpath("page")


def assembled(content: Content) -> bytes:
    """Returns the whole file. Its policy allows the one script and the one style sheet in it."""
    data, is_compressed = encoded(content)
    parts = {
        "policy": _policy(),
        "title": escape(line(content.title)),
        "style": style(),
        "static": html(content.page, _STATIC),
        "encoding": "gzip" if is_compressed else "plain",
        "data": data,
        "script": script(),
    }
    return _filled(_ROOT.joinpath("index.html").read_text("utf-8"), parts).encode()


@cache
def style() -> str:
    """Returns the style sheet without white space: that of the page, then that of its pictures."""
    sheets = (_ROOT.joinpath(f"{name}.css").read_text("utf-8") for name in _SHEETS)
    return str(rcssmin.cssmin("\n".join(sheets)))


@cache
def script() -> str:
    """Returns all scripts as one, without comments and indentation.

    `core` comes first, then `views`, each by name, and `start.js` at last.
    """
    files = [
        file
        for folder in ("core", "views")
        for file in sorted(_ROOT.joinpath(folder).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".js")
    ]
    sources = [file.read_text("utf-8") for file in (*files, _ROOT.joinpath("start.js"))]
    return str(rjsmin.jsmin("\n".join(('"use strict";', *sources))))


def _policy() -> str:
    rules = (
        "default-src 'none'",
        f"script-src '{_digest(script())}'",
        f"style-src '{_digest(style())}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return escape("; ".join(rules), quote=False)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _filled(template: str, parts: Mapping[str, str]) -> str:
    """Returns the template with every `{{part}}`, once: what is filled in is not read again."""
    return _PLACE.sub(lambda place: parts[place[1]], template)
