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


@dataclass(slots=True)
class Labels:
    """Kernels seen so far, numbered in the order met; 0 and 1 frame runs.

    Names in `repeated` are told apart by node index; reading that costs time, so only they are.
    """

    repeated: frozenset[str] = frozenset()
    seen: list[Label] = field(default_factory=list)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)

    def number(self, event: _Event) -> int:
        """The label of a node event."""
        index = ""
        if event.name in self.repeated:
            index = msgspec.json.decode(event.args, type=_Args).node_index
        found = self.numbers.get((event.name, index))
        if found is not None:
            return found
        args = msgspec.json.decode(event.args, type=_Args)
        self.seen.append(
            Label(
                name=event.name.removesuffix(_SUFFIX),
                op_type=args.op_name,
                provider=args.provider,
                input_types=_types(args.input_type_shape),
                output_types=_types(args.output_type_shape),
            )
        )
        self.numbers[(event.name, index)] = number = EXECUTE + len(self.seen)
        return number


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
    for block in _blocks(path):
        try:
            events = decoder.decode(block)
        except msgspec.DecodeError as error:
            raise ModelError(
                f"onnxruntime wrote a profile that is not valid JSON ({error})",
                "A full disk does this; a newer onnxruntime may help.",
            ) from error
        rows = [
            (event.ts, event.dur, event.tid, label)
            for event in events
            if (label := _label(event, labels)) is not None
        ]
        columns.append(np.array(rows, np.int64).reshape(-1, 4))
    table = np.concatenate(columns) if columns else np.empty((0, 4), np.int64)
    return Events(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def _label(event: _Event, labels: Labels) -> int | None:
    if event.cat == "Node":
        # Older releases wrote fence events around each kernel; they were always 0.
        return labels.number(event) if event.name.endswith(_SUFFIX) else None
    if event.name == "model_run":
        return MODEL_RUN
    if event.name == "SequentialExecutor::Execute":
        return EXECUTE
    return None


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines of about a megabyte, each block as a JSON list of its own."""
    with path.open("rb") as stream:
        while lines := stream.readlines(_BLOCK_BYTES):
            body = b"".join(lines).strip().removeprefix(b"[").removesuffix(b"]")
            body = body.strip().removesuffix(b",")
            if body:
                yield b"[" + body + b"]"


def _types(shapes: list[dict[str, list[int]]]) -> tuple[TensorType, ...]:
    return tuple(
        TensorType(_DTYPES.get(dtype, dtype), tuple(shape))
        for entry in shapes
        for dtype, shape in entry.items()
    )
