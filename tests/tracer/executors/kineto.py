"""Events as Kineto has them on an accelerator that this machine may lack."""

import dataclasses
import gzip
import json
from pathlib import Path
from types import SimpleNamespace

from torch._C._autograd import DeviceType

FOLDER = Path("tests/fixtures/profiles")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync")


@dataclasses.dataclass
class Event:
    """One of torch's `_KinetoEvent`s, times in ns; what it lacks is False."""

    called: str
    start: int
    end: int
    correlation: int = 0
    linked: int = 0
    on_device: bool = False
    thread: int = 1
    sequence: int = -1
    stream: int = 7
    annotation: bool = False
    allocated: int = 0

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        values = {
            "name": self.called,
            "start_ns": self.start,
            "end_ns": self.end,
            "duration_ns": self.end - self.start,
            "correlation_id": self.correlation,
            "linked_correlation_id": self.linked,
            "start_thread_id": self.thread,
            "end_thread_id": self.thread,
            "fwd_thread_id": 0,
            "sequence_nr": self.sequence,
            "device_type": DeviceType.CUDA if self.on_device else DeviceType.CPU,
            "device_index": 0,
            "device_resource_id": self.stream if self.on_device else self.thread,
            "is_user_annotation": self.annotation,
            "shapes": [],
            "dtypes": [],
            "stack": [],
            "overload_name": "",
            "cuda_elapsed_us": -1,
            "flops": 0,
            "scope": 0,
            "nbytes": self.allocated,
        }
        return lambda: values.get(name, False)


def recorded(events):
    """Returns a session of torch's profiler that recorded `events`."""
    result = SimpleNamespace(events=lambda: events, trace_start_ns=lambda: 0)
    return SimpleNamespace(kineto_results=result)


def real(name):
    """Returns the events of a file that torch wrote on a card."""
    records = json.loads(gzip.decompress((FOLDER / name).read_bytes()))["traceEvents"]
    first = min(float(record["ts"]) for record in records)
    return [_of_record(record, first) for record in records]


def _of_record(record, first):
    args, category = record["args"], record["cat"]
    start = round((float(record["ts"]) - first) * 1e3) + 1
    end = start + round(float(record["dur"]) * 1e3)
    if category == "memory":
        on_device = bool(args["Device Type"])
        return Event("[memory]", start, end, on_device=on_device, thread=record["tid"],
                     allocated=args["Bytes"])  # fmt: skip
    external, number = args.get("External id", 0), args.get("correlation", 0)
    is_operator = category in ("cpu_op", "user_annotation")
    return Event(
        record["name"], start, end, external if is_operator else number,
        0 if is_operator else external, category in _ON_DEVICE, record["tid"],
        args.get("Sequence number", -1), args.get("stream", 0),
        category.endswith("user_annotation"),
    )  # fmt: skip
