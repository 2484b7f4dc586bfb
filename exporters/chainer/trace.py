"""Trace a Chainer model through onnx_chainer and write module and source line on every node.

onnx_chainer receives a converter for every function. Each calls the converter of the model, of
`converters` or of onnx_chainer, then describes the resulting nodes. A function with parameters
belongs to the link that owns them; any other function belongs to the running link, which a LinkHook
tracks.

Chainer computes some things on arrays, outside of its graph (`F.floor`, or any use of `x.array`). A
trace holds their value for one input. Comparing two traces on different inputs reveals them.

This module imports Chainer.
"""

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from tracer.errors import ModelError
from tracer.executors.chainer.executor import LinkCalls, state_restorer
from tracer.exporters.chainer import compat
from tracer.exporters.chainer.converters import CONVERTERS, correct, whole_sequences
from tracer.exporters.records import Arrays
from tracer.graph import provenance

chainer = compat.load()
_CHAINERS = tuple(Path(importlib.import_module(p).__path__[0]) for p in ("chainer", "onnx_chainer"))
_OURS = Path(__file__).parent
OPSETS = range(7, 12)
"""Operator sets that onnx_chainer writes."""
_APPLYING = ("apply", "hooked_apply")  # the second is onnx_chainer's


@dataclass(frozen=True, slots=True)
class Caller:
    """The innermost line of user code (None if a link of Chainer calls) and the called function.

    `applied` is whether a function of Chainer's graph was being applied to an array.
    """

    source: str | None
    called: str
    applied: bool

    def __str__(self) -> str:
        prefix = "the array given to " if self.applied else ""
        return f"{prefix}Chainer's '{self.called}'" + (f" at {self.source}" if self.source else "")


def caller(called: str) -> Caller:
    """Returns the caller; `called` is the name to use if no frame is Chainer's."""
    frame = sys._getframe(1)
    while frame is not None and _is_in(frame.f_code.co_filename, _OURS):
        frame = frame.f_back  # type: ignore[assignment]
    applied = False
    while frame is not None:
        file = frame.f_code.co_filename
        if _is_in(file, _OURS):
            break
        if _is_in(file, *_CHAINERS):
            called = frame.f_code.co_name
            applied = applied or called in _APPLYING
        elif not (
            file.startswith("<") or provenance.is_installed(Path(file).absolute())
        ):  # "<": code from a string
            return Caller(provenance.location(file, frame.f_lineno), called, applied)
        frame = frame.f_back  # type: ignore[assignment]
    return Caller(None, called, applied)


def _is_in(file: str, *folders: Path) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in folders)


_REMEDY = "Compute it by functions that 'tracer docs chainer-coverage' lists."


@dataclass(frozen=True)
class ChainerTrace:
    """One traced forward pass: the model as onnx_chainer writes it, and values by tensor name.

    `origins` has, for each tensor that no function computed, the line that created it.
    """

    proto: onnx.ModelProto
    values: dict[str, NDArray[Any]] = field(repr=False)
    origins: dict[str, Caller | None]


@contextmanager
def origins(chainer: Any) -> Iterator[dict[int, Caller]]:
    """Records which line created each Variable, by its id, within the context."""
    callers: dict[int, Caller] = {}
    original = chainer.Variable.__init__

    def recording_init(self: Any, *args: Any, **kwargs: Any) -> None:
        callers[id(self)] = caller("Variable")
        original(self, *args, **kwargs)

    chainer.Variable.__init__ = recording_init
    try:
        yield callers
    finally:
        chainer.Variable.__init__ = original


def no_function(origin: Caller | None, reader: str) -> ModelError:
    """Returns the error for a value that depends on the input and that no function computes."""
    source = str(origin) if origin else "an array"
    verb = "is" if origin is None or origin.applied else "gives"
    return ModelError(
        f"{source} {verb} a value that Chainer's graph does not record; {reader}", _REMEDY
    )


def check_constants(first: ChainerTrace, second: ChainerTrace) -> None:
    """Raises ModelError if nodes or weights of two traces of the same shapes differ.

    The difference is a value of the input.
    """
    graphs = first.proto.graph, second.proto.graph
    weights = [{w.name: serialized(w) for w in graph.initializer} for graph in graphs]
    nodes = [[serialized(node) for node in graph.node] for graph in graphs]
    if nodes[0] != nodes[1]:
        raise ModelError(
            "the model computes another graph for another input of the same shape",
            "ONNX would keep one of them: have the graph depend on shapes alone.",
        )
    for node in graphs[0].node:
        for name in node.input:
            if name not in weights[0] or weights[0][name] == weights[1].get(name):
                continue
            source = provenance.source_of(node)
            where = f"node '{node.name}' ({node.op_type})" + (f" at {source}" if source else "")
            if name in first.origins:
                raise no_function(first.origins[name], f"{where} reads it")
            raise ModelError(
                f"the values of one input are baked into {where}",
                "Have it computed from the input.",
            )


def serialized(proto: onnx.NodeProto | onnx.TensorProto) -> bytes:
    """Returns a protobuf as bytes, which are equal for equal ones."""
    return proto.SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function: its input arrays, the running module and the user's source line."""

    function: Any
    reads: Sequence[NDArray[Any]]
    module: str | None
    source: str | None


def trace(model: Any, arrays: Arrays, opset: int) -> ChainerTrace:
    """Traces `model` on these inputs and converts it at `opset`, one of `OPSETS`.

    Functions without a converter in `external_converters` of the model or of a link in it have one
    in `recurrent` or onnx_chainer. Raises ModelError for a function without a converter for its
    arguments, and for an output that no function computed.
    """
    import onnx_chainer
    from onnx_chainer import mapping

    links = _Links(model)
    functions = _Functions(links)
    names = _called_functions(model, arrays) | {*mapping.converters, *CONVERTERS}
    with _ready(model), whole_sequences(chainer), origins(chainer) as callers, links, functions:
        root = _Root(model, callers)
        own = _link_entries(model, "external_converters")
        named_parameters = reversed(list(model.namedparams(include_uninit=False)))
        owners = {id(p): _dotted(path.rpartition("/")[0]) for path, p in named_parameters}
        converters = {**mapping.converters, **CONVERTERS, **own}
        convert = _Converter(functions.calls, owners, converters, set(own), callers)
        proto, _, named = onnx_chainer.export(
            root,
            [array.copy() for array in arrays],
            opset_version=opset,
            input_names=_input_names(model, len(arrays)),
            external_converters={name: partial(convert.convert, name) for name in names},
            return_named_inout=True,
            external_opset_imports=_link_entries(model, "external_opset_imports"),
        )
    outputs = {name: variable.array for name, variable in named.items()}
    in_order = [name for o in root.outputs for name, v in named.items() if v is o]
    places = {name: place for place, name in enumerate(in_order)}
    # onnx_chainer writes the outputs in the order of its search
    proto.graph.output.sort(key=lambda value: places[value.name])
    return ChainerTrace(proto, convert.values | outputs, convert.origins)


class _Root:
    """The model as onnx_chainer sees it; it returns a flat list of results of functions."""

    def __init__(self, model: Any, callers: dict[int, Caller]) -> None:
        self._model, self._callers = model, callers
        self.namedlinks, self.namedparams = model.namedlinks, model.namedparams
        self.outputs: list[Any] = []

    def __call__(self, *inputs: Any) -> list[Any]:
        outputs = _flat(self._model(*inputs))
        for index, output in enumerate(outputs):
            is_input = any(output is value for value in (*inputs, *self._model.params()))
            uncomputed = isinstance(output, chainer.Variable) and output.creator_node is None
            if uncomputed and not is_input:
                origin = self._callers.get(id(output))
                raise no_function(origin, f"it is output {index} of the model")
            repeated = any(output is earlier for earlier in self.outputs)
            # In ONNX an output is no input, and two outputs are two tensors.
            copied = is_input or repeated
            self.outputs.append(chainer.functions.identity(output) if copied else output)
        return self.outputs


def _flat(outputs: Any) -> list[Any]:
    """Returns the outputs as a list, of a model that returns one, a list, a tuple or a dict."""
    if isinstance(outputs, dict):
        return list(outputs.values())
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def run(model: Any, arrays: Arrays) -> list[NDArray[Any]]:
    """Returns the outputs in evaluation mode."""
    with _ready(model), chainer.using_config("train", False), chainer.no_backprop_mode():
        outputs = model(*(chainer.Variable(array.copy()) for array in arrays))
    return [chainer.as_array(output) for output in _flat(outputs)]


@contextmanager
def _ready(model: Any) -> Iterator[None]:
    """Silences warnings; links have afterwards the state they had before."""
    restore, begin = state_restorer(model), state_restorer(model, alone=True)
    begin()  # and keeps these states alive, which the graph does not
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            restore()


def _link_entries(model: Any, attribute: str) -> dict[str, Any]:
    """Returns the entries of a dictionary that links may have; those of outer links come first."""
    entries: dict[str, Any] = {}
    for link in model.links():
        entries = {**getattr(link, attribute, {}), **entries}
    return entries


def _called_functions(model: Any, arrays: Arrays) -> set[str]:
    """Returns the names of the functions of a forward pass, which also shapes lazy parameters."""
    functions = _Functions(_Links(model))
    with functions:
        run(model, arrays)
    called = [call.function for call in functions.calls.values()]
    # as onnx_chainer names them
    names = {str(getattr(f, "custom_function_node_name", type(f).__name__)) for f in called}
    return names | {"Identity"}  # which outputs may need


class _Links(LinkCalls):
    """Tracks the dotted paths of the running links, innermost last."""

    name = "tracer links"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        links = reversed(list(model.namedlinks()))
        self._paths = {id(link): _dotted(name) for name, link in links}
        self.running: list[str | None] = []

    def enter(self, link: Any) -> None:
        outer = self.running[-1] if self.running else None
        self.running.append(self._paths.get(id(link), outer))

    def leave(self) -> None:
        self.running.pop()


class _Functions(chainer.FunctionHook):  # type: ignore[name-defined,misc]
    """Records the calls of a forward pass by the id of the function, which `Call` keeps alive."""

    name = "tracer functions"

    def __init__(self, links: _Links) -> None:
        super().__init__()
        self._links = links
        self.calls: dict[int, Call] = {}

    def forward_preprocess(self, function: Any, in_data: Sequence[NDArray[Any]]) -> None:
        function = getattr(function, "function", function)  # of an old-style Function's adapter
        module = self._links.running[-1] if self._links.running else None
        self.calls[id(function)] = Call(function, in_data, module, caller("").source)


@dataclass(frozen=True)
class _Converter:
    """Calls converters and describes the nodes they return; `own` names those of the model.

    `owners` has the path of the link that owns each parameter, the first if several share it.
    """

    calls: dict[int, Call]
    owners: dict[int, str]
    converters: dict[str, Callable[[Any], Sequence[onnx.NodeProto]]]
    own: set[str]
    callers: dict[int, Caller]
    values: dict[str, NDArray[Any]] = field(default_factory=dict)
    origins: dict[str, Caller | None] = field(default_factory=dict)
    constants: list[NDArray[Any]] = field(default_factory=list)

    def convert(self, name: str, params: Any) -> Sequence[onnx.NodeProto]:
        self._keep_constants(params.context)
        call = self.calls[id(params.func)]
        self.values.update(zip(params.input_names, call.reads, strict=False))
        implicit = params.context.implicit_inputs.items()
        self.origins.update({name: self.callers.get(id(variable)) for name, variable in implicit})
        variables = [node.get_variable_or_none() for node in params.func.inputs]
        owners = {self.owners[id(v)] for v in variables if id(v) in self.owners}
        module = owners.pop() if len(owners) == 1 else call.module
        where = f" in link '{module}'" if module else ""
        where += f" at {call.source}" if call.source else ""
        if name not in self.converters:
            raise ModelError(
                f"there is no converter of Chainer's function {name}, called{where}",
                "'tracer docs chainer-coverage' lists those there are; "
                "'tracer docs frameworks' says how the model has its own.",
            )
        for attribute in ("indices", "condition"):  # of Permutate and of Where
            array = getattr(params.func, attribute, None)
            if (
                isinstance(array, chainer.get_array_types())
                and id(array) not in params.context.name_list
            ):
                params.context.add_const(array, attribute)
        try:
            convert = self.converters[name]
            nodes = convert(params) if name in self.own else correct(name, params, convert)
        except (ValueError, RuntimeError, NotImplementedError) as error:
            reason = f"{error}".rstrip(".")
            raise ModelError(f"{name}, called{where}, cannot be converted: {reason}") from error
        for node in (*params.context.constants, *nodes):
            provenance.describe(node, module, call.source)
        return nodes

    def _keep_constants(self, context: Any) -> None:
        """Keeps arrays alive that become constants: onnx_chainer names them by their ids."""
        if "add_const" in vars(context):
            return
        add_const = context.add_const

        def add_and_keep(array: NDArray[Any], name: str) -> Any:
            self.constants.append(array)
            return add_const(array, name)

        context.add_const = add_and_keep


def _dotted(path: str) -> str:
    return path.strip("/").replace("/", ".")


def _input_names(model: Any, count: int) -> list[str] | None:
    """Returns the parameter names of `__call__` or `forward`; None if inputs outnumber them."""
    for called in (model.__call__, getattr(model, "forward", model.__call__)):
        parameters = list(inspect.signature(called).parameters.values())
        plain = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        if len(plain) >= count:
            return plain[:count]
    return None
