"""Runs a model in OpenVINO on the CPU, in 32-bit floats; runs with its counters take turns.

OpenVINO tells how long each layer took on average since the model was compiled, in whole µs, and
not how long in a run. So a layer has the same share of every recorded run. Which nodes of the model
a layer computes is in the graph that OpenVINO runs (`originalLayersNames`). A layer without any
there is a step of the node that reads its result, or changes a layout.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx

from tracer.containment import activity, memory
from tracer.errors import InputError, ModelError, TracerError
from tracer.executors.eager import alternate
from tracer.executors.measuring import Recorder, RunTimes, use_of, warm_up
from tracer.executors.onnxruntime import all_outputs, kernel_nodes
from tracer.executors.registry import Profiled, TensorExecutor, Tensors
from tracer.executors.settings import MeasuringSettings
from tracer.graph import stored_weights
from tracer.graph.model import Model, Node, encoded
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.records import environment
from tracer.records.trace import Kernel, Run
from tracer.support.imports import require
from tracer.support.measurements import Moment, RunTimer, elapsed_us
from tracer.support.types import FloatArray

EXECUTOR = "openvino"
_CONFIG = {
    "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "ENABLE_CPU_PINNING": False,
    "INFERENCE_PRECISION_HINT": "f32",  # else bfloat16, where the processor has it
}  # fmt: skip
_FIRST_RUNS = 2
"""Runs before those whose layers are timed: the first makes kernels and takes memory."""
_LOST_US, _LOST_ERROR_US = 1.0, 0.58
"""What a mean lacks, and the standard deviation of that: the time of a run and the mean are both
truncated to whole µs."""
_LAYOUT, _NO_LAYERS = "Reorder", ("Input", "Const", "Output", "")
_OPEN = "sizes of the inputs are open: a model that fixes them may run faster in OpenVINO"
_EMPTY_WORDS = (
    "Exception from", "Check '", "FrontEnd API", "Model wasn't", "Summary", "To facilitate",
)  # fmt: skip
"""Begin lines of its errors that do not say what is wrong."""


class _OpenVino:
    settings = MeasuringSettings

    def profile(
        self, model: Model, feedset: FeedSet, settings: MeasuringSettings,
        progress: activity.Progress = activity.silent,
    ) -> Profiled:  # fmt: skip
        """Profiles `model` on `feedset`.

        Raises ModelError or InputError for what OpenVINO refuses, UsageError where it is missing.
        """
        with _running(model, feedset.feeds):
            session = _Session.of(model.executed, feedset.feeds, settings)
            warm_up(session.timed, settings, progress)
            began = Moment.now()
            walls, recorded = alternate(settings, session, progress, session.samples)
        sizes = (dim for value in model.inputs for dim in value.type.tensor_type.shape.dim)
        return Profiled(
            Run(
                executor=EXECUTOR,
                batch=feedset.batch,
                inputs=feedset.types,
                wall_us=np.array(walls.us),
                instrumented_us=np.array(recorded.us),
                samples=session.samples(),
                bias_us=np.zeros(len(session.kernels)),
                bias_error_us=np.full(len(session.kernels), _LOST_ERROR_US),
                kernels=session.kernels,
                notes=(
                    *feedset.notes,
                    *settings.notes(len(recorded.us), sum(recorded.us) / 1e6),
                    "OpenVINO tells means: a layer has the same share of every recorded run, of "
                    f"{np.median(recorded.us):,.0f} µs; {np.median(walls.us):,.0f} µs without its "
                    "counters (medians)",
                    *([] if all(dim.HasField("dim_value") for dim in sizes) else [_OPEN]),
                ),
                use=use_of(walls, recorded, began),
            )
        )

    @contextmanager
    def ready(
        self, model: Model, feedset: FeedSet, settings: MeasuringSettings
    ) -> Iterator[Callable[[], float]]:
        with _running(model, feedset.feeds):
            yield partial(elapsed_us, _request(model.executed, feedset.feeds, settings)[1])

    @contextmanager
    def recording(
        self, model: Model, feedset: FeedSet, settings: MeasuringSettings
    ) -> Iterator[Recorder]:
        """Compiles the model without and with counters, and runs both."""
        with _running(model, feedset.feeds):
            session = _Session.of(model.executed, feedset.feeds, settings)
            names = [kernel.name for kernel in session.kernels]
            read = lambda: RunTimes(names, session.samples(), session.counted_us)  # noqa: E731
            yield Recorder(session.timed, session.runs, read)

    @contextmanager
    def outputs(
        self, model: Model, settings: MeasuringSettings
    ) -> Iterator[Callable[[Feeds], Sequence[Any]]]:
        with _running(model, {}):
            request = _compiled(model.executed, settings).create_infer_request()
            yield partial(_results, model, request)

    def tensors(self, model: Model, feedset: FeedSet, settings: MeasuringSettings) -> Tensors:
        """Returns the outputs, and every tensor of another compilation that returns them all."""
        with _running(model, feedset.feeds), self.outputs(model, settings) as run:
            proto = kernel_nodes.with_safe_names(model.executed)
            listed = len(proto.graph.output)
            names = all_outputs.computed(proto.graph)  # those listed come first
            proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names[listed:])
            request = _compiled(model.executed, settings, proto).create_infer_request()
            values = _results(model, request, feedset.feeds)
            return Tensors(run(feedset.feeds), dict(zip(names, values, strict=True)))


executor: TensorExecutor[Model, FeedSet, MeasuringSettings] = _OpenVino()


@contextmanager
def _running(model: Model, feeds: Feeds) -> Iterator[None]:
    """Says that the model runs inside the block, which may take memory in proportion to it."""
    require(f"{model.name}@{EXECUTOR}", EXECUTOR)
    given = stored_weights.given_bytes(model, feeds.values()) if memory.is_default() else 0
    action = f"OpenVINO {environment.version_of(EXECUTOR, environment.versions())} ran the model"
    with (
        activity.doing(model.name, action, "`tracer interpret` runs it without OpenVINO."),
        memory.at_most(stored_weights.memory_of_runtime(given)),
    ):
        yield


@contextmanager
def _translated(
    model: Model, kind: type[TracerError], what: str, remedy: str = ""
) -> Iterator[None]:
    """Raises what OpenVINO raises as `kind`: it has no class of its own."""
    try:
        yield
    except TracerError:
        raise
    except Exception as error:
        lines = [line.strip(" -.") for line in str(error).splitlines()]
        told = [line for line in lines if line and not line.startswith(_EMPTY_WORDS)]
        why = kernel_nodes.original(model, "; ".join(told[:3]))
        raise kind(f"{model.name}: OpenVINO {what}: {why}", remedy) from error


def _compiled(
    model: Model, settings: MeasuringSettings, proto: onnx.ModelProto | None = None,
    counts: bool = False,
) -> Any:  # fmt: skip
    """Returns the CompiledModel of `model`, or of `proto` as a form of it."""
    import openvino  # optional

    proto = proto or kernel_nodes.with_safe_names(model)
    threads = {"INFERENCE_NUM_THREADS": settings.threads} if settings.threads else {}
    with _translated(model, ModelError, "cannot run it"):
        core = openvino.Core()
        content = encoded(stored_weights.with_inline_weights(proto, model.folder), model.name)
        config = {**_CONFIG, **threads, "PERF_COUNT": counts}
        return core.compile_model(core.read_model(content), "CPU", config)


def _results(model: Model, request: Any, feeds: Feeds) -> list[Any]:
    """Runs on feeds, which stay in the request, and returns copies of the outputs.

    With one thread, `infer` of 2026.4 swallows errors, which `wait` raises.
    """
    remedy = "Give fitting ones with --inputs, --batch or --dim."
    with _translated(model, InputError, "cannot run on these inputs", remedy):
        request.start_async(dict(feeds))
        request.wait()
        return [np.array(tensor.data) for tensor in request.output_tensors]


def _request(
    model: Model, feeds: Feeds, settings: MeasuringSettings, counts: bool = False
) -> tuple[Any, Callable[[], object]]:
    """Returns a request that has made `_FIRST_RUNS`, and what makes further ones."""
    request = _compiled(model, settings, counts=counts).create_infer_request()
    _results(model, request, feeds)
    run = partial(request.infer, share_outputs=True)
    with _translated(model, InputError, "does not run it again"):
        run()  # an argument that releases before 2023.2 lack
    return request, run


@dataclass
class _Session:
    """A model that was compiled without and with counters; `us` are all runs with them.

    `is_counted` tells which of these count; `layers` are the names of the kernels in OpenVINO.
    """

    plain: Callable[[], object]
    counting: Callable[[], object]
    request: Any
    layers: Sequence[str]
    kernels: tuple[Kernel, ...]
    before_us: FloatArray = field(default_factory=lambda: np.zeros(0))
    us: list[float] = field(default_factory=list)
    is_counted: list[bool] = field(default_factory=list)

    @classmethod
    def of(cls, model: Model, feeds: Feeds, settings: MeasuringSettings) -> "_Session":
        """Compiles and runs the model."""
        plain = _request(model, feeds, settings)[1]
        request, counting = _request(model, feeds, settings, counts=True)
        kernels = _kernels(model, request)
        session = cls(plain, counting, request, list(kernels), tuple(kernels.values()))
        session.before_us = _FIRST_RUNS * session.means()
        return session

    def timed(self) -> float:
        """Makes a run without counters and returns its time, µs."""
        return elapsed_us(self.plain)

    def runs(self, count: int) -> RunTimer:
        """Makes `count` runs with counters, after one that fills caches and wakes threads."""
        self.us.append(elapsed_us(self.counting))
        timer = RunTimer()
        for _ in range(count):
            timer.time(self.counting)
            activity.step()
        self.us += timer.us
        self.is_counted += [False, *[True] * count]
        return timer

    @property
    def counted_us(self) -> FloatArray:
        """The runs that count, µs."""
        return np.array(self.us)[np.array(self.is_counted, np.bool_)]

    def means(self) -> FloatArray:
        """Returns what OpenVINO tells: the mean time of each layer in all runs so far, µs."""
        told = {each.node_name: each.real_time for each in self.request.get_profiling_info()}
        return np.array([told[layer].total_seconds() * 1e6 for layer in self.layers])

    def samples(self) -> FloatArray:
        """Returns the times of layers in the runs that count (runs × layers), µs."""
        means, runs = self.means(), len(self.us)
        each = np.maximum(means * (runs + _FIRST_RUNS) - self.before_us, 0.0) / runs
        shares = (each + np.where(means > 0, _LOST_US, 0.0)) / np.mean(self.us)
        samples: FloatArray = self.counted_us[:, None] * shares
        return samples


def _kernels(model: Model, request: Any) -> dict[str, Kernel]:
    """Returns the layers as kernels, by name, each with the nodes that it computes as its parts.

    OpenVINO numbers what it makes itself anew at each compilation, so names leave that out.
    """
    nodes = {node.key: node for node in model.nodes}
    main = [node for node in model.nodes if not node.scope.path]
    # the node of an output of the model is called after the output
    makers = {name: node.key for node in main for name in node.outputs}
    found = dict[str, list[Node]]()
    told = dict[str, tuple[str, str]]()
    for layer in reversed(request.get_compiled_model().get_runtime_model().get_ordered_ops()):
        name, info = layer.get_friendly_name(), layer.get_rt_info()
        originals = info["originalLayersNames"].value.split(",")
        keys = (kernel_nodes.named_node(model, each) or makers.get(each) for each in originals)
        own = [nodes[key] for key in dict.fromkeys(keys) if key]
        kind = info["layerType"].value
        told[name] = own[0].key if own else kind, f"{kind} {info['primitiveType'].value}"
        if not own and kind != _LAYOUT:
            ports = (port for output in layer.outputs() for port in output.get_target_inputs())
            readers = (found.get(port.get_node().get_friendly_name()) for port in ports)
            own = next(filter(None, readers), [])
        found[name] = own
    kernels, seen = dict[str, Kernel](), Counter[str]()
    for each in request.get_profiling_info():
        label, kind = told.get(each.node_name, ("", ""))
        if kind.partition(" ")[0] not in _NO_LAYERS:
            seen[label] += 1
            kernels[each.node_name] = Kernel(
                f"{label} #{seen[label]}" if seen[label] > 1 else label, kind, "", environment.CPU,
                None, "", (), (), (), (), (), float(each.status == each.Status.EXECUTED),
                parts=tuple(map(_part, found[each.node_name])),
            )  # fmt: skip
    return kernels


def _part(node: Node) -> Kernel:
    """Returns a node as a part of a layer.

    Without its inputs, the attribution adds nodes before it that no layer names, such as a MatMul.
    """
    return Kernel(
        node.key, node.op_type, node.domain, environment.CPU, node.key, node.scope.path, (),
        node.outputs, (), (), (), 1.0,
    )  # fmt: skip
