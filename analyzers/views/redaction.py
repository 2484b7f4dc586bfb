"""Results without paths: a `.trace` and a `.json` have none unless asked, and `--redact` leaves
them, the system and the host out of every format."""

import re
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.records.environment import Environment
from tracer.records.model_info import ModelInfo

_T = TypeVar("_T")

_ANY = re.compile(r"(?:[A-Za-z]:)?[^\s'\"(),;:|=]*[/\\][^\s'\"(),;:|]*")
"""A word with a slash; of a path, only what follows the last slash is kept."""
_ABSOLUTE = re.compile(r"(?<![\w.)\]%/\\])(?:[A-Za-z]:)?[/\\][^\s'\"(),;:|=/\\][^\s'\"(),;:|]*")
"""A path from the root of a disk."""
_UNITS = frozenset(("s", "B", "byte", "call", "cycle", "MAC", "node", "op", "run", "sample"))
"""What follows the slash in a rate, as in GB/s, which is no path."""
_NAMES = ("node", "nodes", "module", "kernel", "kernels", "op_type", "name", "key", "scope")
"""Fields and columns whose texts may have slashes and are no paths."""
_LEFT = ("topology", "kernels", "sums", "float_sums", "sums_by_sample", "values", "proto", "inputs")
"""Fields that have nothing but names of nodes and tensors, and numbers."""
_BARE = ("json", "trace")
"""Formats that people share: they have the name and the hash of the model, and not its place."""


def prepared(result: _T, extension: str, options: ViewOptions) -> _T:
    """Returns a result as a file of this format may have it."""
    if options.redact:
        redacted: _T = _Writer.of(result, _ANY).value(result)
        return redacted
    tells_places = isinstance(result, Environment) or options.with_paths
    is_bare = extension.rpartition(".")[2] in _BARE and not tells_places
    return bare(result) if is_bare else result


def bare(result: _T) -> _T:
    """Returns a result without the paths of its model and of anything else on this machine."""
    written: _T = _Writer.of(result, _ABSOLUTE).value(result)
    return written


def bare_text(text: str) -> str:
    """Returns `text` with the last part of every path from the root of a disk."""
    return _Writer(_ABSOLUTE, (), ()).text(text)


def without_paths(text: str, names: Collection[str] = ()) -> str:
    """Returns `text` with the last part of every path, and without the name of this host."""
    return _Writer(_ANY, names, ()).text(text)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes texts without `paths`, except for `names`, and results with such texts.

    `places` are paths as settings have them: they may have spaces, which end a word.
    """

    paths: re.Pattern[str]
    names: Collection[str]
    places: Sequence[str]

    @classmethod
    def of(cls, result: object, paths: re.Pattern[str]) -> "_Writer":
        names = frozenset(_strings(result, wanted=False))
        settings = getattr(result, "settings", None)
        texts = [getattr(getattr(result, "model", None), "path", None) or ""]
        texts += _strings(settings, wanted=True) if isinstance(settings, Mapping) else ()
        places = {text for text in texts if Path(text).is_absolute() and len(Path(text).parts) > 2}
        return cls(paths, names - places, sorted(places, key=len, reverse=True))

    def text(self, text: str) -> str:
        if text in self.names:
            return text
        for place in self.places:
            text = text.replace(place, Path(place).name)

        def last(match: re.Match[str]) -> str:
            word, base = match[0], _base(match[0])
            is_name = word in self.names or word.rstrip(".") in self.names
            return word if is_name or base in _UNITS else base

        shorter = self.paths.sub(last, text)
        host = socket.gethostname() if self.paths is _ANY else ""
        return re.sub(rf"\b{re.escape(host)}\b", "host", shorter) if host else shorter

    def _place(self, text: str) -> str:
        """Returns a file and a line, or several of them: folders may have spaces."""
        is_any = self.paths is _ANY
        parts = (p if not (is_any or Path(p).is_absolute()) else _base(p) for p in text.split(", "))
        return ", ".join(parts)

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Path):
            return Path(value.name)
        if isinstance(value, Mapping):
            return {key: self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.value, value))
        if isinstance(value, pd.DataFrame):
            if "source" not in value:
                return value
            return value.assign(source=value["source"].map(self._place, na_action="ignore"))
        if not is_dataclass(value):
            return value
        own = [field.name for field in fields(value) if field.init and field.name not in _LEFT]
        changed = {name: self.value(getattr(value, name)) for name in own}
        if isinstance(value, ModelInfo):
            changed["path"] = None
        if isinstance(value, Environment) and self.paths is _ANY:
            changed |= {"os": "a system that is not told", "distribution": None, "compiled": None}
        return replace(value, **changed)


def _base(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _strings(value: object, *, wanted: bool) -> Iterator[str]:
    """Yields the texts in fields, keys and columns of names, or all that are `wanted`."""
    if isinstance(value, str):
        yield from [value] if wanted else []
    elif isinstance(value, pd.DataFrame):
        for column in filter(value.__contains__, _NAMES):
            yield from map(str, value[column].dropna())
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _strings(each, wanted=wanted or key in _NAMES)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each, wanted=wanted)
    elif is_dataclass(value):
        for field in fields(value):
            inside = wanted or field.name in _NAMES or field.name == "topology"
            yield from _strings(getattr(value, field.name), wanted=inside)
