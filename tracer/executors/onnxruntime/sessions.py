"""Opens inference sessions, returns their graphs, and translates onnxruntime's errors."""

import io
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

import onnx
import onnxruntime as ort
from onnx.external_data_helper import load_external_data_for_model
from onnxruntime import GraphOptimizationLevel as Level
from onnxruntime.capi import onnxruntime_pybind11_state as state

from tracer.containment import activity, memory, watch
from tracer.errors import InputError, ModelError, UsageError, tells_of_memory
from tracer.executors.onnxruntime import kernel_nodes
from tracer.executors.settings import OrtSettings
from tracer.graph import loading, stored_weights
from tracer.graph.model import Model, canonical_domain, encoded, node_protos
from tracer.graph.provenance import pass_on_metadata
from tracer.records import environment
from tracer.support.temporary import TemporaryFolder, check_room
from tracer.text import plural, suggest, without_code

_Result = TypeVar("_Result")
_FATAL_ONLY = 4  # errors are translated here, so onnxruntime need not print them too
_LEVELS = {
    "none": Level.ORT_DISABLE_ALL,
    "basic": Level.ORT_ENABLE_BASIC,
    "extended": Level.ORT_ENABLE_EXTENDED,
    "all": Level.ORT_ENABLE_ALL,
}
_STORED_APART = 1 << 10
"""Bytes from which a weight of a saved graph goes to a file of its own."""

WITHOUT = "`tracer interpret` runs it without onnxruntime, node by node."
"""What to try if a run crashes."""

_OPTIMISING = {
    "none": (f"onnxruntime {ort.__version__} opened the model", ""),
    "basic": (f"onnxruntime {ort.__version__} optimised the model", "Try --optimization none."),
    **dict.fromkeys(
        ("extended", "all"),
        (f"onnxruntime {ort.__version__} optimised the model", "Try --optimization basic."),
    ),
}
"""What opening a session does, and what to try if it crashes."""

_REFUSALS = (
    # onnxruntime's message, our message, the remedy
    (
        re.compile(r"model IR version: (\d+), max supported IR version: (\d+)"),
        "IR version {0} is newer than the installed onnxruntime {ort} accepts (at most {1})",
        "Export with an older onnx (set model.ir_version = {1} if it uses nothing newer), "
        "or install a newer onnxruntime.",
    ),
    (
        re.compile(
            r"Opset (\d+) is under development.*support for domain (\S+) is till opset (\d+)"
        ),
        "opset {0} of {1} is newer than the installed onnxruntime {ort} supports (at most {2})",
        "Export with opset {2}, or install a newer onnxruntime.",
    ),
    (
        re.compile(r"Fatal error: ([^\s:]+):([^\s(]+)\((-?\d+)\) is not a registered function/op"),
        "onnxruntime {ort} knows no operator {1} in the domain '{0}'",
        "If a library of custom operators has it, name it: --register FILE.so. `tracer count` "
        "counts the rest of the model without.",
    ),
    (
        re.compile(r"Could not find an implementation for (\w+)\((\d+)\) node with name '([^']*)'"),
        "onnxruntime {ort} has no kernel for node '{2}' ({0}, opset {1}) on these types",
        "Use another element type or opset for this node.",
    ),
)


_COMPILED = "contains compiled nodes"
_ENTRY = "RegisterCustomOps"
"""The function of a library that adds its operators to a session."""


class CompiledError(ModelError):
    """The graph that runs cannot be saved: a provider compiled nodes of it."""


@dataclass(frozen=True, slots=True)
class Factory:
    """Opens sessions on one model with the same settings.

    `stored` are values (OrtValue), by name, of initializers that `serialized` calls external.
    Without an `arena` no memory is kept for the next run, nor by the outputs of the last.
    """

    model: Model
    serialized: bytes
    settings: OrtSettings
    stored: Mapping[str, Any] = field(default_factory=dict, repr=False)
    arena: bool = True

    @classmethod
    def of(cls, model: Model, settings: OrtSettings) -> Self:
        """Returns the factory of sessions on `model` itself, with safe names of nodes."""
        return cls(model, kernel_nodes.serialize(model), settings)

    def open(self, profile: Path | None = None, optimized: Path | None = None) -> Any:
        """Returns an InferenceSession.

        `profile` is the file prefix of a profile, `optimized` the file for the optimised graph.
        Raises CompiledError for a graph that cannot be saved, ModelError for what onnxruntime
        refuses, UsageError for an absent provider.
        """
        ort.set_default_logger_severity(_FATAL_ONLY)  # some kernels do not ask their session
        if environment.memory_of(self.settings.provider) == "cuda":
            cuda_problems()
        options = self._options(profile, optimized)
        chosen = [(_provider(self.settings.provider), dict(self.settings.provider_options))]
        try:
            doing = activity.doing(self.model.name, *_OPTIMISING[self.settings.optimization])
            with doing, watch.silent_stderr():
                # a second try on another provider would print, and not be what was asked for
                return ort.InferenceSession(
                    self.serialized, options, providers=chosen, enable_fallback=False,
                    disabled_optimizers=list(self.settings.session.disabled),
                )  # fmt: skip
        except Exception as error:
            if not is_onnxruntimes(error):
                raise
            message = _sentence(self.model, error)
            _refuse_memory(self.model, message)
            check_room()
            if _COMPILED in message:
                raise CompiledError(f"{self.model.name}: {message}") from error
            raise _refusal(self.model, message) from error

    def _options(self, profile: Path | None, optimized: Path | None) -> ort.SessionOptions:
        options, session = ort.SessionOptions(), self.settings.session
        options.log_severity_level = _FATAL_ONLY
        options.intra_op_num_threads = self.settings.threads
        options.graph_optimization_level = _LEVELS[self.settings.optimization]
        if session.parallel:
            options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = session.inter_op_threads
        options.enable_mem_pattern = session.memory_pattern
        options.enable_cpu_mem_arena = session.arena and self.arena
        for name, size in session.dims.items():
            options.add_free_dimension_override_by_name(name, size)
        _register(options, self.settings.register)
        entries = {"session.set_denormal_as_zero": "1"} if session.flushes_denormals else {}
        entries |= session.entries
        if profile is not None:
            options.enable_profiling = True
            # onnxruntime adds the time in seconds: before 1.22 two sessions would share a file.
            options.profile_file_prefix = f"{profile}-{time.monotonic_ns()}"
        if optimized is not None:
            # Weights go to a file of their own: a model may be larger than protobuf can hold.
            # Shapes and axes stay in the graph, where shape inference reads them.
            options.optimized_model_filepath = str(optimized)
            prefix = "session.optimized_model_external_initializers"
            entries[f"{prefix}_file_name"] = f"{optimized.name}.weights"
            entries[f"{prefix}_min_size_in_bytes"] = str(_STORED_APART)
        if self.model.path is not None:
            folder = str(self.model.path.resolve().parent)
            entries["session.model_external_initializers_file_folder_path"] = folder
        entries[kernel_nodes.RECORD] = "1"
        for name, value in entries.items():
            options.add_session_config_entry(name, value)
        if self.stored:
            options.add_external_initializers(list(self.stored), list(self.stored.values()))
        return options

    def save_on_cpu(self, optimized: Path, divided: bool = True) -> None:
        """Saves the graph that the CPU provider runs or, if `divided`, that others divide.

        They take what onnxruntime has optimised up to the level `basic`.
        """
        level = self.settings.optimization
        if divided and level != "none":
            level = "basic"
        settings = replace(self.settings, provider="cpu", provider_options={}, optimization=level)
        replace(self, settings=settings).open(optimized=optimized)


@cache
def cuda_problems() -> str:
    """Loads the libraries of CUDA from NVIDIA's packages; returns what could not be loaded.

    onnxruntime itself looks for them in the system's folders alone.
    """
    load = getattr(ort, "preload_dlls", None)
    said = io.StringIO()
    if load is not None:
        with redirect_stdout(said):  # it prints what it cannot load
            load()
    return "; ".join(line for line in said.getvalue().splitlines() if line.startswith("Failed"))


def _register(options: ort.SessionOptions, libraries: Sequence[str | Path]) -> None:
    """Loads libraries of custom operators. Raises InputError for a file that is none."""
    for library in libraries:
        try:
            with activity.doing(str(library), f"onnxruntime {ort.__version__} loaded the library"):
                options.register_custom_ops_library(str(Path(library).resolve()))
        except Exception as error:
            if not is_onnxruntimes(error):
                raise
            message = " ".join(str(error).split())
            if _ENTRY in message and "symbol" in message:
                raise InputError(
                    f"{library} is no library of custom operators: it has no function {_ENTRY}",
                    "Build it as onnxruntime's documentation of custom operators shows.",
                ) from error
            raise InputError(
                f"{library} cannot be loaded as a library: {message.rpartition(': ')[2]}",
                "--register takes a shared library that was built for this system and processor.",
            ) from error


def translated(model: Model, run: Callable[[], _Result]) -> Callable[[], _Result]:
    """Returns `run` with its failures as InputError, in one sentence on the user's nodes."""

    def translating() -> _Result:
        try:
            return run()
        except Exception as error:
            if not is_onnxruntimes(error):
                raise
            message = _sentence(model, error)
            _refuse_memory(model, message)
            raise InputError(
                f"onnxruntime {ort.__version__} cannot run {model.name} on these inputs: {message}",
                "Give fitting ones with --inputs, --batch or --dim.",
            ) from error

    return translating


def running(model: Model) -> AbstractContextManager[None]:
    """Says, for a crash, that onnxruntime runs `model` inside the `with`."""
    return activity.doing(model.name, ran("the model"), WITHOUT, runs_model=True)


def ran(what: str) -> str:
    """Returns the clause that says what onnxruntime ran when it crashed."""
    return f"onnxruntime {ort.__version__} ran {what}"


def find_crashing_node(model: Model, run: Callable[[Any], object]) -> None:
    """Tells the node of the main graph with which `model` crashes; returns where it does not.

    `run` runs a session once. The parts run without optimisation, and begin with the first node:
    the last node of the smallest part that crashes is the cause.
    """
    proto = onnx.ModelProto.FromString(kernel_nodes.serialize(model))

    def session_of_first(count: int) -> Any:
        """Opens the first `count` nodes; the outputs are the tensors that none of them reads."""
        part = deepcopy(proto)
        graph = part.graph
        del graph.node[count:], graph.output[:]
        read = {name for node in graph.node for name in node.input}
        made = dict.fromkeys(name for node in graph.node for name in node.output if name)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in read)
        settings = OrtSettings(threads=1, optimization="none")
        return Factory(model, encoded(part, model.name), settings).open()

    def dies(count: int) -> bool:
        return watch.crashes(lambda: run(session_of_first(count)))

    runs, crashes = 0, len(proto.graph.node)
    if not dies(crashes):
        return
    while crashes - runs > 1:
        middle = (runs + crashes) // 2
        if dies(middle):
            crashes = middle
        else:
            runs = middle
    node = proto.graph.node[crashes - 1]
    key = kernel_nodes.named_node(model, node.name) or node.name
    watch.tell_cause(model.name, ran(f"node {key} ({node.op_type})"), WITHOUT)


def _refuse_memory(model: Model, message: str) -> None:
    """Raises LimitError where onnxruntime's message is that memory could not be allocated."""
    if tells_of_memory(message):
        raise memory.out_of_memory(
            f"{model.name}: onnxruntime {ort.__version__} ran out of memory: {message}"
        )


def _refusal(model: Model, message: str) -> ModelError:
    for pattern, what, hint in _REFUSALS:
        match = pattern.search(message)
        if match:
            words = match.groups()
            return ModelError(
                f"{model.name}: {what.format(*words, ort=ort.__version__)}", hint.format(*words)
            )
    return ModelError(f"{model.name}: onnxruntime {ort.__version__} cannot run it: {message}")


def is_onnxruntimes(error: Exception) -> bool:
    """onnxruntime's exceptions share a module, not a class; its binding raises these two."""
    return type(error).__module__ == state.__name__ or isinstance(error, RuntimeError | ValueError)


def _sentence(model: Model, error: Exception) -> str:
    """Returns the message without codes and C++ source location, and with the user's node keys."""
    text = without_code(" ".join(str(error).split()))
    text = re.sub(r"(Status Message: )?\S*/onnxruntime/\S+:\d+ .*?\) (?=\S)", "", text)
    return kernel_nodes.original(model, text).rstrip(".")


def _provider(name: str) -> str:
    """Returns onnxruntime's name of a provider: CPUExecutionProvider for `cpu`."""
    available = {each.lower(): str(each) for each in ort.get_available_providers()}
    provider = environment.provider_of(name)
    found = available.get(provider.name.lower())
    if found is not None:
        return found
    known = sorted(map(environment.short_name, available.values()))
    remedy = f"{suggest(name, known)}It has {', '.join(known)}"
    if provider.package:
        remedy = f"{remedy}; {provider.short[0]} comes with {provider.package}"
    raise UsageError(f"the installed onnxruntime has no provider '{name}'", f"{remedy}.")


FILE = "optimized.onnx"
"""The file of the graph, in the folder with its weights."""


@contextmanager
def optimized_model(model: Model, settings: OrtSettings) -> Iterator[Model]:
    """Yields the graph that a session with `settings` runs, under the name and hash of `model`.

    Raises the errors of a session.
    """
    with TemporaryFolder() as folder:
        proto = optimize(model, settings, folder)
        if stored_weights.is_large(model):
            (folder / FILE).write_bytes(encoded(proto, model.name))
            made = loading.load(folder / FILE)
        else:
            made = loading.from_proto(proto, model.name)
        note = (
            f"the graph is what onnxruntime {ort.__version__} makes of the model at the level "
            f"{settings.optimization}: {plural(len(made.nodes), 'node')} of {len(model.nodes)}"
        )
        yield replace(
            made, sha256=model.sha256, subject=model.name, notes=(*model.notes, note),
            operators=model.operators,
        )  # fmt: skip


def optimize(model: Model, settings: OrtSettings, folder: Path) -> onnx.ModelProto:
    """Returns the graph that a session with `settings` runs; large weights are in `folder`.

    Raises the errors of a session.
    """
    Factory.of(model, settings).open(optimized=folder / FILE)
    proto = kernel_nodes.saved_proto(folder / FILE)
    # folding adds weights to the inputs, and makes others needless
    kernel_nodes.list_inputs(proto, {value.name for value in model.inputs})
    # from names that are safe for onnxruntime to keys
    metadata, named = {node.key: node.proto.metadata_props for node in model.nodes}, set()
    for made in node_protos(proto.graph):
        key = kernel_nodes.named_node(model, made.name)
        if key is None or key in named:  # new, or one more part of a node
            made.name = kernel_nodes.original(model, made.name)
        else:
            made.name = key
        if key is not None:
            named.add(made.name)
            del made.metadata_props[:]
            made.metadata_props.extend(metadata[key])
    pass_on_metadata(proto, named)
    proto.metadata_props.extend(model.proto.metadata_props)  # what sessions run has none
    keep_imports(proto, model)
    if not stored_weights.is_large(model):
        load_external_data_for_model(proto, str(folder))
    return proto


def keep_imports(proto: onnx.ModelProto, model: Model) -> None:
    """Removes the opsets of unused domains: onnxruntime lists all domains that it knows."""
    used = {canonical_domain(node.domain) for node in node_protos(proto.graph)} | {""}
    versions = {
        canonical_domain(entry.domain): entry.version
        for entry in proto.opset_import
        if canonical_domain(entry.domain) in used | set(model.opsets)
    }
    del proto.opset_import[:]
    for domain, version in versions.items():
        proto.opset_import.add(domain=domain, version=version)
