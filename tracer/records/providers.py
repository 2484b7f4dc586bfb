"""The execution providers of onnxruntime: their names, what brings them, and what their times are.

The standard wheel has the CPU alone; `onnxruntime.get_available_providers()` lists the others.
"""

from dataclasses import dataclass

CPU = "CPUExecutionProvider"
_SUFFIX = "ExecutionProvider"
_OF_DIRECTML = "DmlFusedNode_"


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider; `short` names it on the command line.

    One that `compiles` turns many nodes into one kernel, and onnxruntime cannot save the graph that
    then runs. One that `waits` returns from a kernel when the result is there; others return when
    the work is queued on the device. `package` brings the provider.
    """

    name: str
    short: tuple[str, ...]
    package: str
    compiles: bool
    waits: bool


PROVIDERS = (
    Provider(CPU, ("cpu",), "onnxruntime", compiles=False, waits=True),
    Provider("CUDAExecutionProvider", ("cuda",), "onnxruntime-gpu", compiles=False, waits=False),
    Provider("TensorrtExecutionProvider", ("tensorrt", "trt"), "onnxruntime-gpu",
             compiles=True, waits=False),
    Provider("NvTensorRTRTXExecutionProvider", ("nvtensorrtrtx", "trt-rtx"), "onnxruntime-trt-rtx",
             compiles=True, waits=False),
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
