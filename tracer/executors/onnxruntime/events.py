"""Stream-read onnxruntime's profile: a JSON list with an event a line, up to a gigabyte of them.

What the fields mean, and what they lack, differs by version; nothing here relies on the order of
the file. See the sources `onnxruntime/core/common/profiler.cc` and `sequential_executor.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tracer.errors import ModelError
from tracer.tensor import TensorType

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    IntArray: TypeAlias = npt.NDArray[np.int64]

MODEL_RUN, EXECUTE = 0, 1
"""Labels of the two kinds of session events that frame the nodes."""

IGNORED, _UNKNOWN = -1, -2

_BLOCK_BYTES = 1 << 20
_SUFFIX = "_kernel_time"
_DTYPES = {"float": "float32", "double": "float64"}


class _Event(msgspec.Struct):
    cat: str
    name: str
    ts: int
    dur: int
    tid: int
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Args(msgspec.Struct):
    """Every field is missing in some version."""

    op_name: str = ""
    provider: str = ""
    node_index: str = ""
    input_type_shape: list[dict[str, list[int]]] = []
    output_type_shape: list[dict[str, list[int]]] = []


@dataclass(frozen=True, slots=True)
class Label:
    """One kernel as the profile tells it, at its first call."""

    name: str
    op_type: str
    provider: str
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]


def _frames() -> dict[str, int]:
    return {"model_run": MODEL_RUN, "SequentialExecutor::Execute": EXECUTE}


@dataclass(slots=True)
class Labels:
    """Kernels seen so far, numbered in the order met; 0 and 1 frame runs.

    Event names in `repeated` are told apart by node index; reading that costs time, so only they
    are. `known` has the numbers of all others.
    """

    repeated: frozenset[str] = frozenset()
    seen: list[Label] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=_frames)
    by_index: dict[tuple[str, str], int] = field(default_factory=dict)

    def number(self, event: _Event) -> int:
        """The label of an event, which is among the known from then on if its name tells it."""
        if event.name in self.known:
            return self.known[event.name]
        if event.cat != "Node" or not event.name.endswith(_SUFFIX):
            # Session start, or the fence events of older releases, which were always 0.
            self.known[event.name] = IGNORED
            return IGNORED
        args = msgspec.json.decode(event.args, type=_Args)
        if event.name not in self.repeated:
            self.known[event.name] = number = self._add(event, args)
            return number
        key = (event.name, args.node_index)
        if key not in self.by_index:
            self.by_index[key] = self._add(event, args)
        return self.by_index[key]

    def _add(self, event: _Event, args: _Args) -> int:
        self.seen.append(
            Label(
                name=event.name.removesuffix(_SUFFIX),
                op_type=args.op_name,
                provider=args.provider,
                input_types=_types(args.input_type_shape),
                output_types=_types(args.output_type_shape),
            )
        )
        return EXECUTE + len(self.seen)


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of one profile; times in µs since it began, `label` as `Labels` numbers them."""

    ts: IntArray
    dur: IntArray
    tid: IntArray
    label: IntArray

    def __len__(self) -> int:
        return len(self.ts)


def read(path: Path, labels: Labels) -> Events:
    """All node, execute and run events of a profile. Raises ModelError where it does not parse."""
    import numpy as np

    columns: list[IntArray] = []
    decoder = msgspec.json.Decoder(list[_Event])
    known = labels.known
    for block in _blocks(path):
        try:
            events = decoder.decode(block)
        except msgspec.DecodeError as error:
            raise ModelError(
                f"onnxruntime wrote a profile that is not valid JSON ({error})",
                "A full disk does this; a newer onnxruntime may help.",
            ) from error
        numbers = [known.get(event.name, _UNKNOWN) for event in events]
        if _UNKNOWN in numbers:
            numbers = [
                labels.number(event) if number == _UNKNOWN else number
                for event, number in zip(events, numbers, strict=True)
            ]
        rows = [(e.ts, e.dur, e.tid, n) for e, n in zip(events, numbers, strict=True)]
        columns.append(np.array(rows, np.int64).reshape(-1, 4))
    table = np.concatenate(columns) if columns else np.empty((0, 4), np.int64)
    table = table[table[:, 3] != IGNORED]
    return Events(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines of about a megabyte, each block as a JSON list of its own."""
    with path.open("rb") as stream:
        rest = b""
        while data := stream.read(_BLOCK_BYTES):
            whole, newline, tail = data.rpartition(b"\n")
            if not newline:  # a line longer than a block
                rest += data
                continue
            yield from _list(rest + whole)
            rest = tail
        yield from _list(rest)


def _list(lines: bytes) -> Iterator[bytes]:
    body = lines.strip().removeprefix(b"[").removesuffix(b"]").strip().removesuffix(b",")
    if body:
        yield b"[" + body + b"]"


def _types(shapes: list[dict[str, list[int]]]) -> tuple[TensorType, ...]:
    return tuple(
        TensorType(_DTYPES.get(dtype, dtype), tuple(shape))
        for entry in shapes
        for dtype, shape in entry.items()
    )
