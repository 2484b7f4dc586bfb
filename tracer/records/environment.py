"""The machine and the software of a measurement, and the execution providers of onnxruntime.

The standard wheel has the provider of the CPU alone; `onnxruntime.get_available_providers()` lists
the others.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from operator import attrgetter
from pathlib import Path
from typing import ClassVar

from tracer.containment import memory
from tracer.records.result import Result
from tracer.support.measurements import Load

RUNTIMES = (
    "onnxruntime-openvino", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-qnn",
    "onnxruntime-rocm", "onnxruntime-migraphx", "onnxruntime-vitisai", "onnxruntime-trt-rtx",
    "onnxruntime-webgpu", "onnxruntime",
)  # fmt: skip
"""Distributions of onnxruntime. They share a module, which is that of a special one if there is
one beside the standard one."""
_PACKAGES = (
    "tracer-onnx", "onnx", *RUNTIMES, "openvino", "numpy", "numba", "pandas",
    "torch", "torchvision", "onnxscript", "chainer", "cupy", "cupy-cuda11x", "cupy-cuda12x",
    "cupy-cuda13x",
)  # fmt: skip
"""What runs or describes models: the versions that a result depends on."""
_DOT_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
"""Instruction sets that add products of bytes in 32 bits."""
_CPU_FLAGS = frozenset(
    {
        "avx2", "avx512f", "avx512dq", "avx512bw", "avx512_vnni", "avx_vnni", "avx512_bf16",
        "amx_tile", "amx_int8", "asimd", "asimddp", "bf16", "sve", "i8mm",
    }
)  # fmt: skip
"""Instruction sets that decide which kernels a runtime picks."""
_ALONE = 0.9
_NOISE = 1.05


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest rate that was measured, per second, and the program that reached it."""

    rate: float
    by: str


TF32 = "tf32"
"""The type of products of float32 in which a card rounds the factors to 11 bits first."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peak rates of a machine with `threads` threads, or of a `card` (see `tracer.host`).

    `float32` in flop/s, `int8` in operations per second (two per multiply-accumulate), `memory` in
    bytes per second of main memory; None if not measured. `products` are those of a card by further
    types, such as `tf32`. `cpu_share` is the share of CPU time that the threads got in the best
    tries: well below 1, other programs made the peaks too low. `load` is what other programs did
    during all tries. `cache` is the size of the last-level cache in bytes, 0 if it is not known.
    """

    threads: int
    float32: Peak
    memory: Peak
    int8: Peak | None = None
    cpu_share: float = 1.0
    load: Load | None = None
    card: str = ""
    products: Mapping[str, Peak] = field(default_factory=dict)
    cache: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether other programs took part of the CPU's time that mattered."""
        return self.cpu_share < _ALONE

    @property
    def arithmetic(self) -> Mapping[str, Peak]:
        """The peaks of arithmetic by type."""
        return {"float32": self.float32, **self.products} | (
            {"int8": self.int8} if self.int8 else {}
        )

    def raised(self, shown: Mapping[str, Peak]) -> "Peaks":
        """Returns these peaks where none of `shown`, by type, is above them by more than noise.

        Else returns them with the rates that were shown.
        """
        beaten = {
            kind: shown[kind]
            for kind, peak in self.arithmetic.items()
            if kind in shown and shown[kind].rate > _NOISE * peak.rate
        }
        if not beaten:
            return self
        right = {**self.arithmetic, **beaten}
        return replace(self, float32=right["float32"], int8=right.get("int8"))

    def at_least(self, other: "Peaks") -> "Peaks":
        """Returns the higher of each peak, with the higher `cpu_share`."""
        rate = attrgetter("rate")
        int8 = [peak for peak in (self.int8, other.int8) if peak is not None]
        return replace(
            self,
            float32=max(self.float32, other.float32, key=rate),
            memory=max(self.memory, other.memory, key=rate),
            int8=max(int8, key=rate, default=None),
            cpu_share=max(self.cpu_share, other.cpu_share),
        )


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """The code that tracer compiles for its own sums (see `tracer.host`).

    `instructions` are those of its inner loop, `threads` those it uses by default, and `folder`
    keeps it; None if no folder can be written.
    """

    instructions: str
    threads: int
    folder: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Environment(Result):
    """CPU, memory (bytes), accelerators and versions; None and empty mean unknown or absent.

    `gpus` names each card, `cuda` is the driver's version, and `distribution` the name that the
    system gives itself, beside its kernel `os`. `peaks` are measured only when something is to be
    compared with them; `other_peaks` are those at the other numbers of threads of a sweep.
    `compiled`, and what keeps the `fence` of commands, are known where they were asked for, as by
    `tracer env`.
    """

    view: ClassVar[str] = "tracer.analyzers.views.environment"

    cpu: str
    cpu_count: int
    cpu_flags: tuple[str, ...]
    memory_bytes: int | None
    gpus: tuple[str, ...]
    cuda: str | None
    os: str
    python: str
    packages: Mapping[str, str]
    peaks: Peaks | None = None
    distribution: str | None = None
    other_peaks: tuple[Peaks, ...] = ()
    compiled: CompiledCode | None = None
    fence: str | None = None

    def peaks_at(self, threads: int | None) -> Peaks | None:
        """Returns the peaks of a run with this number of threads; None is the runtime's choice."""
        return next((p for p in self.other_peaks if p.threads == threads), self.peaks)

    def headline(self) -> str:
        """The same line as `summary`."""
        return self.summary

    def version(self, executor: str) -> str:
        """The version of the package that an executor runs models with; '' if it is not known."""
        return version_of(executor, self.packages)

    @property
    def summary(self) -> str:
        """CPU, versions and system in one line, for the foot of a page."""
        if not self.cpu_count:  # of a profile that another program recorded
            return f"{self.cpu}: no file says more"
        runtime = self.version("onnxruntime") or "?"
        return (
            f"{self.cpu}, {self.cpu_count} CPUs · onnxruntime {runtime} · "
            f"Python {self.python} · {self.os}"
        )


def observe() -> Environment:
    """Returns this machine and its package versions, which are read without importing packages."""
    gpus, cuda = _gpus()
    memory_bytes = None
    with suppress(AttributeError, ValueError, OSError):  # Windows has no sysconf
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        distribution: str | None = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:  # no Linux, or a container without /etc/os-release
        release = platform.mac_ver()[0]
        distribution = f"macOS {release}" if release else None
    return Environment(
        cpu=cpu_model(),
        cpu_count=memory.processor_count(),
        cpu_flags=cpu_flags(),
        memory_bytes=memory_bytes,
        gpus=gpus,
        cuda=cuda,
        os=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        packages=versions(),
        distribution=distribution,
    )


def installed() -> dict[str, str]:
    """Returns the version of every installed distribution by name, sorted without regard to case.

    Of two with the same name, the first on the path counts, as in an import.
    """
    versions: dict[str, str] = {}
    for found in metadata.distributions():
        versions.setdefault(found.name, found.version)
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))


def _cpuinfo(field: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "")


def cpu_model() -> str:
    """Returns the system's name of the processor."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def cpu_flags() -> tuple[str, ...]:
    """Returns the instruction sets of `_CPU_FLAGS` that the processor has, () if unknown."""
    flags = (_cpuinfo("flags") or _cpuinfo("Features")).split()
    return tuple(sorted(_CPU_FLAGS.intersection(flags)))


def adds_bytes_exactly(flags: Collection[str]) -> bool:
    """Returns whether a processor with these instruction sets adds products of bytes in 32 bits."""
    return not _DOT_PRODUCTS.isdisjoint(flags)


def saturates(flags: Collection[str]) -> bool:
    """Returns whether unsigned by signed bytes are added in pairs of 16 bits, which saturate.

    onnxruntime's kernels for AVX2 and AVX-512 do so by VPMADDUBSW, unless the processor has VNNI.
    """
    return "avx2" in flags and not adds_bytes_exactly(flags)


def _gpus() -> tuple[tuple[str, ...], str | None]:
    """NVIDIA cards by name and memory, and the driver's CUDA version."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return (), None
    query = [command, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        names = _output(query).splitlines()
        banner = _output([command])
    except (OSError, subprocess.SubprocessError):  # a driver without a card answers with an error
        return (), None
    cuda = banner.split("CUDA Version:")[1].split()[0] if "CUDA Version:" in banner else None
    return tuple(name.strip() for name in names if name.strip()), cuda


def _output(command: list[str]) -> str:
    return subprocess.run(  # noqa: S603 - a fixed command found on PATH
        command, capture_output=True, text=True, timeout=10, check=True
    ).stdout


def version_of(executor: str, packages: Mapping[str, str]) -> str:
    """Returns the version of the package of an executor among `packages`; '' if it is not there."""
    names = RUNTIMES if executor == "onnxruntime" else (executor,)
    return next((packages[name] for name in names if name in packages), "")


def versions() -> dict[str, str]:
    """Returns the versions of what runs or describes models, without importing it."""
    versions = {}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


CPU = "CPUExecutionProvider"
COPIES = ("MemcpyFromHost", "MemcpyToHost")
"""Operators that onnxruntime inserts to copy a tensor between the memories of two providers."""
_SUFFIX = "ExecutionProvider"
_OF_DIRECTML = "DmlFusedNode_"


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider; `short` names it on the command line.

    One that `compiles` turns many nodes into one kernel, and onnxruntime cannot save the graph that
    then runs. One that `waits` returns from a kernel when the result is there; others return when
    the work is queued on the device. `package` brings the provider. In its `memory`, by
    onnxruntime's name, inputs and outputs can stay from run to run.
    """

    name: str
    short: tuple[str, ...]
    package: str
    compiles: bool
    waits: bool
    memory: str = "cpu"


PROVIDERS = (
    Provider(CPU, ("cpu",), "onnxruntime", compiles=False, waits=True),
    Provider("CUDAExecutionProvider", ("cuda",), "onnxruntime-gpu",
             compiles=False, waits=False, memory="cuda"),
    Provider("TensorrtExecutionProvider", ("tensorrt", "trt"), "onnxruntime-gpu",
             compiles=True, waits=False, memory="cuda"),
    Provider("NvTensorRTRTXExecutionProvider", ("nvtensorrtrtx", "trt-rtx"), "onnxruntime-trt-rtx",
             compiles=True, waits=False, memory="cuda"),
    Provider("OpenVINOExecutionProvider", ("openvino", "ov"), "onnxruntime-openvino",
             compiles=True, waits=True),
    Provider("QNNExecutionProvider", ("qnn",), "onnxruntime-qnn", compiles=True, waits=True),
    Provider("CoreMLExecutionProvider", ("coreml",), "onnxruntime on macOS",
             compiles=True, waits=True),
    Provider("XnnpackExecutionProvider", ("xnnpack",), "a build with --use_xnnpack",
             compiles=True, waits=True),
    Provider("DmlExecutionProvider", ("dml", "directml"), "onnxruntime-directml",
             compiles=True, waits=False),
    Provider("MIGraphXExecutionProvider", ("migraphx",), "onnxruntime-migraphx",
             compiles=True, waits=False),
    Provider("ROCMExecutionProvider", ("rocm",), "onnxruntime-rocm", compiles=False, waits=False),
    Provider("DnnlExecutionProvider", ("dnnl", "onednn"), "a build with --use_dnnl",
             compiles=True, waits=True),
    Provider("VitisAIExecutionProvider", ("vitisai",), "onnxruntime-vitisai",
             compiles=True, waits=True),
    Provider("WebGpuExecutionProvider", ("webgpu",), "onnxruntime-webgpu",
             compiles=False, waits=False),
)  # fmt: skip
"""`waits` is as onnxruntime's source has it: OpenVINO waits for its inference request, QNN executes
its graph, and CoreML predicts synchronously; CUDA, ROCm and DirectML queue. TensorRT waits where
the graph is partitioned, and queues where it runs all of it, so its times are not relied on."""

_BY_NAME = {provider.name: provider for provider in PROVIDERS}
_BY_SHORT = {short: provider for provider in PROVIDERS for short in provider.short}


def provider_of(name: str) -> Provider:
    """Returns the provider of this name, long or short, in any case.

    Of a provider that is not in the table, nothing is taken for granted: it may compile and queue.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    short = name.lower().removesuffix(_SUFFIX.lower())
    found = _BY_SHORT.get(short)
    long = name if name.endswith(_SUFFIX) else f"{name}{_SUFFIX}"
    return found or Provider(long, (short,), "", compiles=True, waits=False)


def is_named(name: str) -> bool:
    """Returns whether this is the long or the short name of a provider."""
    return name.endswith(_SUFFIX) or name.lower() in _BY_SHORT


def is_cpu(name: str) -> bool:
    """Returns whether the provider of this name, short or long, is the CPU."""
    return provider_of(name).name == CPU


def queues(name: str) -> bool:
    """Returns whether kernels of a provider return before they are done; '' is no provider."""
    return bool(name) and not provider_of(name).waits


def memory_of(name: str) -> str:
    """Returns the memory of a provider, `cuda` or `cpu`; '' is no provider."""
    return provider_of(name).memory if name else "cpu"


def is_compiled(provider: str, op_type: str, name: str) -> bool:
    """Returns whether a kernel of a profile is a subgraph that a provider compiled, by its name.

    onnxruntime calls it `<provider>_<operator>_<number>` (graph_partitioner.cc), and DirectML,
    which compiles by itself, `DmlFusedNode_…`.
    """
    own = bool(provider) and name.startswith(f"{provider}_{op_type}_")
    return own or op_type.startswith(_OF_DIRECTML) or name.startswith(_OF_DIRECTML)


def short_name(name: str) -> str:
    """Returns the short name of a provider: `openvino` for OpenVINOExecutionProvider."""
    return provider_of(name).short[0]
