"""The machine of a run: card, clocks, driver, versions, processor."""

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

SECONDS: float = 10

_CARD = (
    "name", "memory.total", "driver_version", "compute_cap", "clocks.sm", "clocks.mem",
    "clocks.max.sm", "clocks.max.mem", "power.limit", "temperature.gpu", "ecc.mode.current",
    "mig.mode.current", "persistence_mode",
)  # fmt: skip
"""Fields of `nvidia-smi --query-gpu`, with their units in what it answers."""
_PACKAGES = (
    "torch", "triton", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "onnxscript", "onnx-ir",
    "cupy-cuda13x", "numba", "llvmlite", "pandas", "cloup", "transformers", "torchvision",
    "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-cuda-cupti",
)  # fmt: skip


def measure(seconds):
    """Returns what there is: a part that is not there is None."""
    del seconds
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "card": card(),
        "torch": torch_and_cuda(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        "cpu": _cpu(),
        "cpu_count": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def card(command="nvidia-smi"):
    """Returns what `nvidia-smi` says of the first card; None without it or without a card."""
    fields = ",".join(_CARD)
    try:
        answer = subprocess.run(
            [command, f"--query-gpu={fields}", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        ).stdout.splitlines()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    if not answer:
        return None
    return dict(zip(_CARD, (text.strip() for text in answer[0].split(",")), strict=True))


def torch_and_cuda():
    """Returns what torch says of itself and of its card; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    versions = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "threads": torch.get_num_threads(),
    }
    if not torch.cuda.is_available():
        return versions
    properties = torch.cuda.get_device_properties(0)
    names = ("name", "major", "minor", "multi_processor_count", "total_memory", "L2_cache_size",
             "warp_size", "shared_memory_per_multiprocessor", "regs_per_multiprocessor",
             "max_threads_per_multi_processor", "clock_rate", "memory_clock_rate",
             "memory_bus_width")  # fmt: skip
    known = {name: getattr(properties, name, None) for name in names}
    return versions | {"device": {name: each for name, each in known.items() if each is not None}}


def _version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
