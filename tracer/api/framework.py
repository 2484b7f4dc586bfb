"""`tracer.profile_framework`: profiles a live model in PyTorch or Chainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.api._calls import by_rules as contained
from tracer.support.arguments import RULES, swept
from tracer.support.progress import Progress, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracer.limits import Limits
    from tracer.records.trace import Trace

_RULES = {name: swept(RULES[name]) for name in ("batch", "threads")}


@dataclass(frozen=True)
class FrameworkOptions:
    """The arguments of `profile_framework` that only a model of a framework has."""

    framework: str | None = None
    args: Mapping[str, object] = field(default_factory=dict)
    weights: Path | None = None
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None
    input_dtype: str | Sequence[str] = "float32"
    train: bool = False
    backward: bool = False
    loss: str | None = None
    optimizer: str | None = None
    compiled: bool = False
    device: str = "cpu"
    trust: bool = False


@contained(_RULES)
def profile_framework(
    target: str,
    *,
    framework: str | None = None,
    args: Mapping[str, object] | None = None,
    weights: Path | None = None,
    batch: int | Sequence[int] | None = None,
    runs: int | None = None,
    warmup: int = 5,
    min_time: float | None = None,
    precision: float | None = None,
    threads: int | Sequence[int] = 0,
    seed: int = 0,
    train: bool = False,
    backward: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
    loss: str | None = None,
    optimizer: str | None = None,
    compiled: bool = False,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    input_dtype: str | Sequence[str] = "float32",
    trust: bool = False,
    inputs: Sequence[NDArray[Any]] | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Trace:
    """Profiles the model that `target` names in its own framework.

    It is profiled once for each batch size and number of threads.

    `target`, `args`, `weights` and `trust` are arguments of `exporters.source.load_source`, which
    runs code of the target. `input_shape` has the batch first; its default is the model's attribute
    `input_shape`, without the batch. Random weights and inputs are drawn from `seed`. Or `inputs`
    are the arrays, by position; `batch`, `input_shape` and `input_dtype` then do nothing. `runs` to
    `optimizer` are described in `executors.settings`; `compiled` adds a run of the model
    after torch.compile. The model is restored afterwards.

    The model runs in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. Raises the errors of `tracer.errors`.
    """
    from tracer.api import _framework

    return _framework.profile_framework(
        target, framework, args or {}, weights, batch, runs, warmup, min_time, precision,
        threads, seed, train, backward, device, progress or silent, loss, optimizer, compiled,
        input_shape, input_dtype, trust, inputs,
    )  # fmt: skip
