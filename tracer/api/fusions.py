"""`tracer.fusions`: maps the kernels that a runtime runs to the nodes of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api import _calls
from tracer.api._calls import Contained, contained
from tracer.containment.activity import Progress
from tracer.support.arguments import option

if TYPE_CHECKING:
    from tracer.analyzers.fusions import Fusions
    from tracer.exporters.subject import ModelSource


@dataclass(frozen=True)
class FusionsArguments(Contained):
    """The arguments of `fusions`."""

    model: ModelSource
    _: KW_ONLY
    batch: int | None = _calls.batch("1")
    dims: Mapping[str, int] | None = _calls.dims()
    feeds: str | Path | Sequence[str | Path] | None = option(
        "Input values to compare on: an .npz file or a test_data_set folder. Repeatable.  "
        "[default: random, twice]",
        None, group=_calls.INPUT, flag="--inputs", reads=("path",), multiple=True,
    )  # fmt: skip
    seed: int = _calls.seed()
    optimization: str = _calls.optimization()
    threads: int = _calls.threads()
    register: Sequence[str | Path] = _calls.register()
    progress: Progress | None = None
    executor: str = "onnxruntime"


@contained(FusionsArguments)
def fusions(call: FusionsArguments) -> Fusions:
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

    return _fusions.fusions(call)
