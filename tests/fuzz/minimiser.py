"""Makes a mutant that fails smaller, as long as it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import onnx
from google.protobuf.message import DecodeError, Message

from tests.fuzz.mutants import Mutant
from tests.fuzz.trials import Task, trials
from tests.fuzz.verdicts import suspicious, verdict


def minimised(mutant: Mutant, index: int, group: str, seconds: float) -> Mutant:
    """Returns the smallest mutant found whose command at `index` fails in this group."""
    until = time.monotonic() + seconds

    def fails(content: bytes) -> bool:
        changed = replace(mutant, content=content)
        ends = trials(lambda _: changed, [Task(0, index, index + 1)], 1, suspicious)
        return any(verdict(ended).group == group for _, _, ended in ends)

    content = mutant.content
    if mutant.kind == "model":
        content = _smaller_model(content, fails, until)
    return replace(mutant, content=_shorter(content, fails, until))


def _smaller_model(content: bytes, fails: Callable[[bytes], bool], until: float) -> bytes:
    """Deletes nodes, weights, attributes and whatever else repeats, at any depth."""
    try:
        model = onnx.ModelProto.FromString(content)
    except DecodeError:
        return content
    if not fails(model.SerializeToString()):  # it fails because of how it is encoded
        return content
    has_shrunk = True
    while has_shrunk:
        has_shrunk = False
        for parent, name in list(_fields(model)):
            has_shrunk |= _shrunk(model, parent, name, fails, until)
    return model.SerializeToString()


def _fields(message: Message) -> Iterator[tuple[Message, str]]:
    """All fields that are set, outer ones first."""
    for descriptor, value in message.ListFields():
        yield message, descriptor.name
        if descriptor.message_type is not None:
            for inner in value if descriptor.is_repeated else [value]:
                yield from _fields(inner)


def _shrunk(
    model: onnx.ModelProto, parent: Message, name: str, fails: Callable[[bytes], bool], until: float
) -> bool:
    """Removes a field, or entries of it by halves, quarters and so on; returns whether it did."""
    before = parent.SerializeToString()
    value = getattr(parent, name)
    count = len(value) if parent.DESCRIPTOR.fields_by_name[name].is_repeated else 1
    has_shrunk, size = False, count
    while size and time.monotonic() < until:
        start = 0
        while start < count and time.monotonic() < until:
            if size == count:
                parent.ClearField(name)
            else:
                del getattr(parent, name)[start : start + size]
            if fails(model.SerializeToString()):
                before, has_shrunk = parent.SerializeToString(), True
                count -= min(size, count - start)
            else:
                parent.ParseFromString(before)
                start += size
        size = min(size // 2, count)
    return has_shrunk


def _shorter(content: bytes, fails: Callable[[bytes], bool], until: float) -> bytes:
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
