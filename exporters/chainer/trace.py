"""One traced forward pass through onnx_chainer, with what it does not keep: where nodes came from.

onnx_chainer is told of a converter for every function, each of which calls its own converter and
then writes on the nodes it made which link and which line of the model they stand for. Functions
that own parameters belong to the parameters' link; the others to the link that was running, which
a LinkHook knows.

This module imports Chainer, and is imported only by functions that are about to use it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from numpy.typing import NDArray

from exporters.chainer import compat
from exporters.chainer.constants import no_function, origins
from exporters.chainer.corrections import correct
from exporters.chainer.frames import Caller, caller
from exporters.metadata import describe
from exporters.records import Arrays
from tracer.errors import ModelError

chainer = compat.load()
OPSETS = range(7, 12)
"""Operator sets that onnx_chainer writes."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function as it was called: what it read, and who called it where."""

    function: Any
    reads: Sequence[NDArray[Any]]
    module: str | None
    source: str | None


@dataclass(frozen=True)
class Trace:
    """What one pass gave: the model as onnx_chainer writes it, and values by tensor name.

    `origins` are the tensors that no function made: who did.
    """

    proto: onnx.ModelProto
    values: dict[str, NDArray[Any]] = field(repr=False)
    origins: dict[str, Caller | None]


def trace(model: Any, arrays: Arrays, opset: int) -> Trace:
    """Export `model` at `opset`, one of `OPSETS`, on these inputs.

    Raises ModelError for a function that has no converter, or has none for its arguments, and for
    an output that no function made.
    """
    import onnx_chainer
    from onnx_chainer import mapping

    paths = {id(link): _dotted(name) for name, link in reversed(list(model.namedlinks()))}
    links = _Links(paths)
    functions = _Functions(links)
    names = _seen(model, arrays) | set(mapping.converters)
    with warnings.catch_warnings(), origins(chainer) as made, links, functions:
        warnings.simplefilter("ignore")
        root = _Root(model, made)
        convert = _Converter(functions.calls, _owners(model), mapping.converters, made)
        proto, _, named = onnx_chainer.export(
            root,
            [array.copy() for array in arrays],
            opset_version=opset,
            input_names=_input_names(model, len(arrays)),
            external_converters={name: convert.named(name) for name in names},
            return_named_inout=True,
        )
    outputs = {name: variable.array for name, variable in named.items()}
    _in_order(proto.graph, [name for o in root.outputs for name, v in named.items() if v is o])
    return Trace(proto, convert.values | outputs, convert.origins)


class _Root:
    """The model as onnx_chainer sees it: its outputs are one list of functions' results."""

    def __init__(self, model: Any, made: dict[int, Caller]) -> None:
        self._model, self._made = model, made
        self.namedlinks, self.namedparams = model.namedlinks, model.namedparams
        self.outputs: list[Any] = []

    def __call__(self, *inputs: Any) -> list[Any]:
        outputs = _flat(self._model(*inputs))
        for index, output in enumerate(outputs):
            given = any(output is value for value in (*inputs, *self._model.params()))
            made_by_none = isinstance(output, chainer.Variable) and output.creator_node is None
            if made_by_none and not given:
                raise no_function(self._made.get(id(output)), f"it is output {index} of the model")
            again = any(output is earlier for earlier in self.outputs)
            # ONNX has no output that is an input, nor one tensor for two outputs
            self.outputs.append(chainer.functions.identity(output) if given or again else output)
        return self.outputs


def _flat(outputs: Any) -> list[Any]:
    """The outputs of a model that returns one, a list, a tuple or a dict."""
    if isinstance(outputs, dict):
        return list(outputs.values())
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _in_order(graph: onnx.GraphProto, names: Sequence[str]) -> None:
    """onnx_chainer writes the outputs in the order in which it comes to them."""
    values = {value.name: value for value in graph.output}
    ordered = [values[name] for name in names]
    del graph.output[:]
    graph.output.extend(ordered)


def run(model: Any, arrays: Arrays) -> list[NDArray[Any]]:
    """The model's outputs, in evaluation mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            outputs = model(*(chainer.Variable(array.copy()) for array in arrays))
    return [chainer.as_array(output) for output in _flat(outputs)]


def _seen(model: Any, arrays: Arrays) -> set[str]:
    """Names of the functions that a forward pass calls; it also gives lazy parameters a shape."""
    functions = _Functions(_Links({}))
    with functions:
        run(model, arrays)
    names = {_name(call.function) for call in functions.calls.values()}
    return names | {"Identity"}  # which outputs may need


def _name(function: Any) -> str:
    """By which onnx_chainer knows the function."""
    return str(getattr(function, "custom_function_node_name", type(function).__name__))


class _Links(chainer.LinkHook):  # type: ignore[name-defined,misc]
    """The dotted paths of the links that are running, innermost last."""

    name = "tracer links"

    def __init__(self, paths: dict[int, str]) -> None:
        super().__init__()
        self._paths = paths
        self.running: list[str | None] = []

    def forward_preprocess(self, args: Any) -> None:
        outer = self.running[-1] if self.running else None
        self.running.append(self._paths.get(id(args.link), outer))

    def forward_postprocess(self, args: Any) -> None:
        self.running.pop()


class _Functions(chainer.FunctionHook):  # type: ignore[name-defined,misc]
    """The calls of a forward pass by the id of the function, which `Call` keeps alive."""

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
    """onnx_chainer's converters, each followed by a note on the nodes it made."""

    calls: dict[int, Call]
    owners: dict[int, str]
    converters: dict[str, Callable[[Any], Sequence[onnx.NodeProto]]]
    made: dict[int, Caller]
    values: dict[str, NDArray[Any]] = field(default_factory=dict)
    origins: dict[str, Caller | None] = field(default_factory=dict)

    def named(self, name: str) -> Callable[[Any], Sequence[onnx.NodeProto]]:
        return lambda params: self._convert(name, params)

    def _convert(self, name: str, params: Any) -> Sequence[onnx.NodeProto]:
        call = self.calls[id(params.func)]
        self.values.update(zip(params.input_names, call.reads, strict=False))
        implicit = params.context.implicit_inputs.items()
        self.origins.update({name: self.made.get(id(variable)) for name, variable in implicit})
        owner = self._owner(params.func)
        module = call.module if owner is None else owner
        where = f" in link '{module}'" if module else ""
        where += f" at {call.source}" if call.source else ""
        if name not in self.converters:
            raise ModelError(
                f"onnx_chainer does not support Chainer's function {name}, called{where}",
                "docs/chainer-coverage.md lists what it does.",
            )
        _name_arrays(params.func, params.context)
        try:
            nodes = correct(name, params, self.converters[name])
        except (ValueError, RuntimeError, NotImplementedError) as error:
            reason = f"{error}".rstrip(".")
            raise ModelError(f"{name}, called{where}, cannot be converted: {reason}") from error
        for node in (*params.context.constants, *nodes):
            describe(node, module, call.source)
        return nodes

    def _owner(self, function: Any) -> str | None:
        """Path of the link that owns the function's parameters, where it is one link."""
        variables = [node.get_variable_or_none() for node in function.inputs]
        found = {self.owners[id(v)] for v in variables if id(v) in self.owners}
        return found.pop() if len(found) == 1 else None


def _name_arrays(function: Any, context: Any) -> None:
    """Make constants of arrays that a function holds: onnx_chainer takes them for inputs."""
    for attribute in ("indices", "condition"):  # of Permutate and of Where
        array = getattr(function, attribute, None)
        if isinstance(array, chainer.get_array_types()) and id(array) not in context.name_list:
            context.add_const(array, attribute)


def _owners(model: Any) -> dict[int, str]:
    """Path of the link that owns each parameter; the first of several that share one."""
    named = reversed(list(model.namedparams(include_uninit=False)))
    return {id(parameter): _dotted(name.rpartition("/")[0]) for name, parameter in named}


def _dotted(path: str) -> str:
    return path.strip("/").replace("/", ".")


def _input_names(model: Any, count: int) -> list[str] | None:
    """The names of the parameters of `forward`, or of `__call__`, where each input has one."""
    called = getattr(model, "forward", model.__call__)
    parameters = list(inspect.signature(called).parameters.values())
    plain = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    return plain[:count] if len(plain) >= count else None
