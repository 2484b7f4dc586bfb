"""`tracer.fusions`: maps the kernels that a runtime runs to the nodes of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api._calls import by_rules as contained
from tracer.support.progress import Progress

if TYPE_CHECKING:
    from tracer.analyzers.fusions import Fusions
    from tracer.exporters.subject import Subject
    from tracer.limits import Limits


@contained()
def fusions(
    model: Subject,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: str | Path | Sequence[str | Path] | None = None,
    seed: int = 0,
    threads: int = 0,
    optimization: str = "all",
    register: Sequence[str | Path] = (),
    progress: Progress | None = None,
    executor: str = "onnxruntime",
    limits: Limits | None = None,
    in_process: bool = False,
) -> Fusions:
    """Returns which nodes each kernel of `model` contains, checked by comparing tensor values.

    `feeds` are .npz files or test_data_set folders, one inference each. The default is two sets of
    random inputs, from `seed` and the next seed. Tensors of the optimised graph are compared with
    tensors that the interpreter computes; where this is impossible, a note says why and no kernel
    is confirmed. `register` are libraries of custom operators for onnxruntime.

    The model runs in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. The interpreter keeps to the other `limits` [default: 4 GiB of live
    values]. Raises the errors of `tracer.errors` for a model or inputs that cannot run.
    """
    from tracer.api import _fusions

    return _fusions.fusions(
        model,
        batch,
        dims or {},
        feeds,
        seed,
        threads,
        optimization,
        register,
        progress,
        executor,
        limits,
    )
