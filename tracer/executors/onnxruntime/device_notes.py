"""Says what the times of kernels are that ran on another device than the CPU."""

import os
from collections.abc import Iterator, Sequence

from tracer.records import providers
from tracer.records.trace import Kernel

_BLOCKING = "CUDA_LAUNCH_BLOCKING"


def notes(kernels: Sequence[Kernel], apart_us: float = 0.0, here: bool = True) -> tuple[str, ...]:
    """Returns notes on providers that queue kernels, and return before they are done.

    `apart_us` is the time on the device that belongs to no node. A profile that was not recorded
    `here` does not say whether launches waited.
    """
    queueing = sorted({k.provider for k in kernels if providers.queues(k.provider)})
    return tuple(_notes(queueing, kernels, apart_us, here))


def _notes(
    queueing: Sequence[str], kernels: Sequence[Kernel], apart_us: float, here: bool
) -> Iterator[str]:
    for name in queueing:
        yield f"{name} runs asynchronously: {_times(name, here)}"
    measured = sum(kernel.device_us for kernel in kernels if kernel.device_us is not None)
    if any(kernel.device_us is not None for kernel in kernels):
        yield (
            f"kernels took {measured:,.1f} µs per run on the device itself (time_us_device), which "
            "overlaps with the launches and is no part of their times"
        )
    elif queueing:
        yield (
            "the time on the device was not recorded: builds of onnxruntime with CUDA or ROCm "
            "profiling write it"
        )
    if apart_us > 0:
        yield (
            f"{apart_us:,.1f} µs on the device, in all runs, belong to no node: copies of inputs "
            "and outputs, and kernels whose launch the profile does not name"
        )


def _times(name: str, here: bool) -> str:
    if not here:
        return (
            f"its kernels have the times of their launch, unless {_BLOCKING}=1 made each launch "
            "wait for its kernel"
        )
    if name.startswith("CUDA") and os.environ.get(_BLOCKING) == "1":
        return f"{_BLOCKING}=1 made each launch wait, so its kernels have the times of both"
    return "its kernels have the times of their launch"
