"""`tracer.profile_framework`: profiles a live model in PyTorch or Chainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.api import _calls
from tracer.executors.settings import DEVICES, LOSSES, OPTIMIZERS
from tracer.support.arguments import RULES, argument, instance, maybe, option, several, swept

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracer.records.environment import Peaks
    from tracer.records.trace import Trace

_CODE = "Framework (FILE.py:NAME)"


@dataclass(frozen=True, kw_only=True)
class FrameworkOptions:
    """The arguments of `profile_framework` that only a model of a framework has."""

    framework: str | None = _calls.framework(group=_CODE)
    args: Mapping[str, object] | None = _calls.args(group=_CODE)
    weights: Path | None = _calls.weights(group=_CODE)
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = _calls.input_shape(
        "the model's", _CODE
    )
    input_dtype: str | Sequence[str] = _calls.input_dtype(group=_CODE)
    train: bool = option(
        "Measure the forward pass in training mode, recorded for gradients.", False, group=_CODE
    )
    backward: bool = option(
        "Measure training steps: forward and backward pass.", False, group=_CODE
    )
    loss: str | None = option(
        "Loss of a training step.  [default: sum]", None, group=_CODE, reads=("choice", *LOSSES)
    )
    optimizer: str | None = option(
        "Include an optimizer step in every run.  [default: none]", None,
        group=_CODE, reads=("choice", *OPTIMIZERS),
    )  # fmt: skip
    compiled: bool = option(
        "Also measure the model compiled by torch.compile.", False, group=_CODE, flag="--compile"
    )
    device: str = option(
        "Device that the framework runs on.", "cpu", group=_CODE, reads=("choice", *DEVICES)
    )
    trust: bool = _calls.trust(group=_CODE)


@dataclass(frozen=True)
class ProfileFrameworkArguments(FrameworkOptions, _calls.Contained):
    """The arguments of `profile_framework`."""

    target: str
    _: KW_ONLY
    batch: int | Sequence[int] | None = argument(None, rule=swept(RULES["batch"]))
    runs: int | None = None
    warmup: int = 5
    min_time: float | None = None
    precision: float | None = None
    threads: int | Sequence[int] = argument(0, rule=swept(RULES["threads"]))
    seed: int = 0
    inputs: Sequence[NDArray[Any]] | None = argument(
        None, rule=maybe(several(instance("numpy.ndarray")))
    )
    peaks: Callable[[int], Peaks] | None = None


@_calls.contained(ProfileFrameworkArguments)
def profile_framework(call: ProfileFrameworkArguments) -> Trace:
    """Profiles the model that `target` names in its own framework.

    It is profiled once for each batch size and number of threads.

    `target`, `args`, `weights` and `trust` are arguments of `exporters.subject.load_source`, which
    runs code of the target. `input_shape` has the batch first; its default is the model's attribute
    `input_shape`, without the batch. Random weights and inputs are drawn from `seed`. Or `inputs`
    are the arrays, by position; `batch`, `input_shape` and `input_dtype` then do nothing. `runs` to
    `optimizer` are described in `executors.settings`; `compiled` adds a run of the model
    after torch.compile. The model is restored afterwards. `peaks` is called with `threads` after
    the runs: its peaks, as those of `tracer.host.card`, are the roofs of the operators, whose work
    torch counts in a run of its own.

    The model runs in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. Raises the errors of `tracer.errors`.

    >>> import tracer
    >>> trace = tracer.profile_framework("models/lenet/torch_net.py:LeNet", runs=5, batch=2)
    >>> trace.runs[0].executor
    'torch'
    """
    from tracer.api import _framework

    return _framework.profile_framework(call)
