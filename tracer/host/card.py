"""The peak rates of an NVIDIA card, the roofs of a profile there: measured by torch, and stored.

A product is of square matrices of random numbers: a card that multiplies zeros draws less power,
and clocks higher than any network sees. Tries are timed by CUDA events; the median of the tries at
the faster of two sizes counts. Memory is a copy within the card, which counts the bytes that are
read and those that are written.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tracer.host import read_peaks, write_peaks
from tracer.records.environment import TF32, Peak, Peaks, observe
from tracer.support.files import cached_file
from tracer.support.measurements import times_us

_SIZES = (8192, 4096)
"""A product of the larger one takes 1 to 25 ms; the smaller one may end before the clock drops."""
_COPIED_BYTES = 2 << 30
"""Bytes that are copied: many times the last cache of any card."""
_OF_FREE = 8
"""The share of the free memory, 1/8, that an array may take."""
_SETTLED_S, _LEAST_TRIES, _MOST_TRIES = 0.1, 5, 200
_SECONDS = 3
"""About how long measuring takes, most of it for float32."""
_METHOD = 1
"""Increase it when the measurement changes."""
_FLOAT32, _FLOAT8 = "float32", "float8_e4m3fn"
_NEEDED = {_FLOAT32: (0, 0), TF32: (8, 0), "float16": (7, 0), "bfloat16": (8, 0), _FLOAT8: (8, 9)}
"""The compute capability from which on tensor cores multiply the type; float32 has none."""


def peaks(
    threads: int = 0,
    *,
    anew: bool = False,
    folder: Path | None = None,
    announce: Callable[[str], None] = lambda text: None,
) -> Peaks:
    """Returns the peaks of torch's current card; `threads` of the host do not matter to it.

    Measures them if none are stored for this card, driver and version of torch, or if `anew`.
    `announce` is called with a message before measuring. `folder` defaults to the user's cache
    folder. torch must see a card.
    """
    del threads
    device = torch.device("cuda", torch.cuda.current_device())
    properties = torch.cuda.get_device_properties(device)
    key = (
        _METHOD, properties.name, properties.total_memory, properties.multi_processor_count,
        observe().cuda, torch.version.cuda, torch.__version__,
    )  # fmt: skip
    file = cached_file("peaks", key, folder)
    stored = None if anew else read_peaks(file)
    if stored is None:
        announce(f"measuring what {properties.name} can do, about {_SECONDS} s")
        stored = measure(device)
        write_peaks(file, stored)
    return stored


def measure(
    device: torch.device, sizes: Sequence[int] = _SIZES, copied: int = _COPIED_BYTES
) -> Peaks:
    """Measures the products of every type that `device` multiplies in hardware, and its memory.

    Matrices have these `sizes`, and a copy `copied` bytes, or an eighth of the free memory.

    Peaks of arithmetic are in flop/s, by type: `tf32` multiplies float32 rounded to 11 bits.
    """
    is_card = device.type == "cuda"
    capability = torch.cuda.get_device_capability(device) if is_card else (0, 0)
    types = [name for name, needed in _NEEDED.items() if capability >= needed]
    products: dict[str, Peak] = {}
    for name in types:
        with nullcontext() if name == _FLOAT32 else suppress(RuntimeError):  # its library may not
            rates = {size: 2e6 * size**3 / _product_us(name, device, size) for size in sizes}
            size = max(rates, key=rates.__getitem__)
            what = "_scaled_mm" if name == _FLOAT8 else "matmul"
            products[name] = Peak(
                rates[size], f"torch {torch.__version__} {what} of {name}, {size} x {size}"
            )
    return Peaks(
        threads=0,
        float32=products.pop(_FLOAT32),
        memory=bandwidth(device, copied),
        card=torch.cuda.get_device_name(device) if is_card else device.type,
        products=products,
    )


def _product_us(name: str, device: torch.device, size: int) -> float:
    """Returns the median time of a product of random matrices."""
    random = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(size, size, device=device, generator=random) for _ in range(2))
    if name == _FLOAT8:
        one = torch.ones((), device=device)
        low, transposed = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
        return median_us(
            lambda: torch._scaled_mm(
                low, transposed, scale_a=one, scale_b=one, out_dtype=torch.bfloat16,
                use_fast_accum=True,
            ),
            device,
        )  # fmt: skip
    dtype = torch.float32 if name == TF32 else getattr(torch, name)
    a, b, out = a.to(dtype), b.to(dtype), torch.empty(size, size, device=device, dtype=dtype)
    with multiplying(name):
        return median_us(lambda: torch.matmul(a, b, out=out), device)


def bandwidth(device: torch.device, copied: int) -> Peak:
    """Returns the bytes per second that a copy within the memory of `device` reads and writes."""
    is_card = device.type == "cuda"
    size = min(copied, torch.cuda.mem_get_info(device)[0] // _OF_FREE) if is_card else copied
    source = torch.randint(1 << 30, (size // 4,), dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    copied_us = median_us(lambda: target.copy_(source), device)
    rate = 2e6 * source.nbytes / copied_us
    return Peak(rate, f"torch {torch.__version__} copy of {source.nbytes >> 20} MiB")


def median_us(run: Callable[[], object], device: torch.device) -> float:
    """Returns the median time of `run` on the clock of `device`, after runs to warm up."""

    def run_to_its_end() -> None:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()

    (once_us,) = times_us(run_to_its_end, 1, warmup=1)
    tries = min(max(int(1e6 * _SETTLED_S / max(once_us, 1e-3)), _LEAST_TRIES), _MOST_TRIES)
    if device.type != "cuda":
        return median(times_us(run, tries))
    event_type: Any = torch.cuda.Event  # has no types
    events = [event_type(enable_timing=True) for _ in range(tries + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return median(1e3 * float(start.elapsed_time(end)) for start, end in pairwise(events))


def multiplied_as(operator: str) -> str:
    """Returns the type in which the card multiplies float32 now: `float32` or `tf32`.

    By default convolutions use TF32 and matrix products do not, and each has its own setting.
    """
    if "attention" in operator:  # fused attention: three products of TF32 for each of float32
        return TF32
    is_convolution = "conv" in operator
    cudnn: Any = torch.backends.cudnn
    setting = getattr(cudnn, "conv", None) if is_convolution else torch.backends.cuda.matmul
    precision = getattr(setting, "fp32_precision", "none")  # torch < 2.9 has `allow_tf32` alone
    if precision == "none":
        former = cudnn if is_convolution else torch.backends.cuda.matmul
        return TF32 if former.allow_tf32 else _FLOAT32
    return TF32 if precision == TF32 else _FLOAT32


@contextmanager
def multiplying(name: str) -> Iterator[None]:
    """Multiplies matrices of float32 in TF32 if `name` says so, else exactly."""
    setting = torch.backends.cuda.matmul
    attribute = "fp32_precision" if hasattr(setting, "fp32_precision") else "allow_tf32"
    before = getattr(setting, attribute)
    values = {"fp32_precision": (TF32, "ieee"), "allow_tf32": (True, False)}[attribute]
    setattr(setting, attribute, values[name != TF32])
    try:
        yield
    finally:
        setattr(setting, attribute, before)
