"""Makes a mutant that fails smaller, as long as it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import onnx
from google.protobuf.message import DecodeError, Message

from tests.fuzz.mutants import Mutant
from tests.fuzz.trials import Task, trials
from tests.fuzz.verdicts import suspicious, verdict

Path = tuple[str | int, ...]


def minimised(mutant: Mutant, index: int, group: str, seconds: float) -> Mutant:
    """Returns the smallest mutant found whose command at `index` fails in this group."""
    until = time.monotonic() + seconds

    def fails(content: bytes) -> bool:
        changed = replace(mutant, content=content)
        ends = trials(lambda _: changed, [Task(0, index, index + 1)], 1, suspicious)
        return any(verdict(ended).group == group for _, _, ended in ends)

    content = mutant.content
    if mutant.kind == "model":
        content = smaller_model(content, fails, until)
    return replace(mutant, content=shorter(content, fails, until))


def smaller_model(content: bytes, fails: Callable[[bytes], bool], until: float) -> bytes:
    """Deletes nodes, weights, attributes and whatever else is set, at any depth."""
    try:
        places = list(_places(onnx.ModelProto.FromString(content)))
    except DecodeError:
        return content
    if not fails(onnx.ModelProto.FromString(content).SerializeToString()):
        return content  # it fails because of how it is encoded
    while True:
        before = content
        for place in places:
            content = _without(content, place, fails, until)
        if content == before:
            return content
        places = list(_places(onnx.ModelProto.FromString(content)))


def _places(message: Message, path: Path = ()) -> Iterator[Path]:
    """The ways to all fields that are set, outer ones first: names of fields, places in lists."""
    for descriptor, value in message.ListFields():
        yield (*path, descriptor.name)
        if descriptor.message_type is not None and descriptor.is_repeated:
            for place, inner in enumerate(value):
                yield from _places(inner, (*path, descriptor.name, place))
        elif descriptor.message_type is not None:
            yield from _places(value, (*path, descriptor.name))


def _without(content: bytes, path: Path, fails: Callable[[bytes], bool], until: float) -> bytes:
    """Clears a field, or deletes half of its entries, a quarter and so on, as long as it fails."""
    size, start = _count(content, path), 0
    while size and time.monotonic() < until:
        if start >= _count(content, path):
            size, start = size // 2, 0
            continue
        model = onnx.ModelProto.FromString(content)
        *way, name = path
        parent = _at(model, way)
        if size >= _count(content, path):
            parent.ClearField(name)
        else:
            del getattr(parent, name)[start : start + size]
        if fails(model.SerializeToString()):
            content = model.SerializeToString()
        else:
            start += size
    return content


def _count(content: bytes, path: Path) -> int:
    """How many entries there are; 0 for what an earlier step removed."""
    *way, name = path
    try:
        parent = _at(onnx.ModelProto.FromString(content), way)
    except IndexError:
        return 0
    if parent.DESCRIPTOR.fields_by_name[name].is_repeated:
        return len(getattr(parent, name))
    return int(parent.HasField(name))


def _at(message: Any, way: Sequence[str | int]) -> Any:
    for step in way:
        message = message[step] if isinstance(step, int) else getattr(message, step)
    return message


def shorter(content: bytes, fails: Callable[[bytes], bool], until: float) -> bytes:
    """Deletes bytes by halves, quarters and so on, until the time is up."""
    size = len(content) // 2
    while size and time.monotonic() < until:
        start = 0
        while start < len(content) and time.monotonic() < until:
            shorter = content[:start] + content[start + size :]
            if fails(shorter):
                content = shorter
            else:
                start += size
        size //= 2
    return content
