"""What runs in a worker: it opens jobs, and calls their methods, one at a time.

`version` tells what results depend on beside model and data: the code, and what it computes with.
"""

import hashlib
import os
import pickle
from collections import OrderedDict
from functools import cache
from importlib import metadata
from pathlib import Path
from threading import Lock
from typing import Any

from tracer.errors import TracerError
from tracer.scaling.pool import Task

PACKAGE = "tracer-onnx"
_COMPUTING = ("numpy", "numba", "onnx", "ml_dtypes")
"""Packages whose other versions may round otherwise."""
_DIGITS = 12

_MOST = 2
"""Jobs that are open at a time: an evaluation on all samples takes turns with one on some."""

_opened: OrderedDict[str, Any] = OrderedDict()
_lock = Lock()


def run(task: Task, threads: int | None, job: bytes | Path) -> Any:
    """Returns the result of a task. Raises what its method raises.

    `job` is the pickled job, or a file that has it; it is read where it is not open yet. Raises
    CannotOpenError where that fails.
    """
    with _lock:
        return getattr(_open(task.job, threads, job), task.method)(*task.arguments)


def _open(key: str, threads: int | None, job: bytes | Path) -> Any:
    if key not in _opened:
        try:
            data = job.read_bytes() if isinstance(job, Path) else job
            opened = pickle.loads(data).open(threads)  # noqa: S301 - it comes from our client
        except (TracerError, OSError) as error:
            raise CannotOpenError(error) from error
        _opened[key] = opened
    _opened.move_to_end(key)
    while len(_opened) > _MOST:
        _opened.popitem(last=False)
    return _opened[key]


class CannotOpenError(Exception):
    """A worker cannot open a job: it lacks the data, or the files of the model.

    `reason` is the error that it met. Another worker may be able to.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason

    def __reduce__(self) -> tuple[type["CannotOpenError"], tuple[Exception]]:
        return type(self), (self.reason,)


@cache
def version() -> str:
    """Returns the versions of the package and of what it computes with, and a hash of its code."""
    digest = hashlib.sha256()
    folder = Path(__file__).parents[1]
    walk = os.walk(folder, followlinks=True)  # in a checkout, analyzers and exporters are links
    files = (Path(root, name) for root, _, names in walk for name in names)
    for file in sorted(file for file in files if file.suffix == ".py"):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(file.read_bytes())
    others = ", ".join(f"{name} {metadata.version(name)}" for name in _COMPUTING)
    code = digest.hexdigest()[:_DIGITS]
    return f"{metadata.version(PACKAGE)} (code {code}, {others})"
