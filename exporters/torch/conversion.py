"""Converts PyTorch models to ONNX by torch's dynamo exporter, and simplifies what it wrote.

A module may say more of its tensors in two attributes. `tensor_names` is a pair: the names of the
inputs and those of the outputs. `dynamic_axes` has for each input the names of its axes of any
size, as {1: "sequence"}; axes of one name have one size. The batch, axis 0, need not be named.
"""

import inspect
import os
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
import onnx_ir.passes.common as passes
import torch
from numpy.typing import NDArray

from tracer.errors import ModelError, UsageError
from tracer.exporters.records import BATCH, Arrays, Conversion, ExportOptions, InputSpec, draw
from tracer.exporters.torch.archive import environment, quiet
from tracer.graph import provenance, stored_weights
from tracer.graph.model import bodies, graphs
from tracer.graph.provenance import describe, is_installed, location
from tracer.support.temporary import TemporaryFolder

_HIDDEN = "tracer.kept"
_ROUNDS = 2  # folding enables rewriting and vice versa; onnxscript's number
_FOLDING = ("Conv", "ConvTranspose", "Gemm")
_OPSET = 20  # the first with Gelu; torch implements none before 18
_APART = 1 << 10
"""Bytes from which a weight of a large model is external data: shapes stay in the graph."""
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_TRAINING = ("train", "training", "use_input_stats")
"""Arguments of ATen operators that are true in training mode."""
_STATIC = "Give --static-batch, or have the model work on any batch."
_RETURNED = re.compile(r"Found <class '[^']*?(?P<name>\w+)'> in output")
_FIXED = re.compile(r"static shape of (?P<size>\d+) for dimension inputs\['?(?P<name>\w+)'?\]")


def convert(
    model: torch.nn.Module | torch.export.ExportedProgram,
    inputs: Sequence[InputSpec],
    options: ExportOptions,
) -> Conversion:
    """Returns `model` as ONNX. Raises UsageError or ModelError where that is impossible."""
    if isinstance(model, torch.export.ExportedProgram):
        if inputs:
            raise UsageError("an exported program has its shapes in it", "Leave --input-shape out.")
        return _convert_program(model, options)
    if not inputs:
        raise UsageError("the shape of the input is not known", "Give it: --input-shape 1,3,32,32.")
    batched = options.dynamic_batch and any(spec.shape for spec in inputs)
    # Torch takes a batch of 1 for a constant, so the traced batch is at least 2.
    large = [s.with_batch(max(2, s.shape[0])) if s.shape else s for s in inputs]
    with _evaluating(model):
        arrays = draw(large if batched else inputs, options.seed)
        shapes = dynamic_shapes(model, inputs, batched)
        program = _export(model, _tensors(model, arrays), shapes, options)
        rename(program.model.graph, model)
        return _conversion(program, lambda arrays: run(model, arrays), inputs, options)


def run(module: torch.nn.Module, arrays: Arrays) -> list[NDArray[Any]]:
    """Returns the outputs of one inference in evaluation mode."""
    with torch.no_grad(), _evaluating(module):
        outputs = module(*_tensors(module, arrays))
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [leaf.cpu().numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def annotate(proto: onnx.ModelProto) -> None:
    """Gives nodes module path and source line, weights a mark; drops all that torch wrote."""
    for graph in graphs(proto.graph):
        marks = provenance.parameter_marks(graph)
        for node in graph.node:
            describe(node, provenance.module_of(node), provenance.source_of(node))
        for value in (*graph.input, *graph.output, *graph.value_info):
            del value.metadata_props[:]
        for weight in graph.initializer:
            del weight.metadata_props[:]
            if weight.name in marks:
                provenance.mark_parameters(weight, marks[weight.name])
        del graph.metadata_props[:]
    _add_modules(proto.graph)
    for node in proto.graph.node:
        _add_modules_of_bodies(node, {w.name for w in proto.graph.initializer if "." in w.name})
    del proto.metadata_props[:]


def _add_modules(graph: onnx.GraphProto) -> None:
    """Gives a node without module the module of its reader, or else of its producer.

    Torch has no module for nodes that compute sizes of a dynamic batch. A node between an input and
    an output belongs to the root.
    """
    readers = {name: node for node in reversed(graph.node) for name in node.input}
    producers = {name: node for node in graph.node for name in node.output}
    for nodes, names, neighbours in (
        (reversed(graph.node), "output", readers),
        (graph.node, "input", producers),
    ):
        for node in nodes:
            if provenance.module_of(node) is None:
                adjacent = [neighbours[n] for n in getattr(node, names) if n in neighbours]
                modules = (provenance.module_of(other) for other in adjacent)
                module = next((m for m in modules if m is not None), None)
                describe(node, module, provenance.source_of(node))
    for node in graph.node:
        if provenance.module_of(node) is None:
            describe(node, "", provenance.source_of(node))


def _add_modules_of_bodies(owner: onnx.NodeProto, weights: Set[str]) -> None:
    """Gives nodes of the bodies of `owner` the module of the weights they read, else its module.

    Torch writes no metadata on branches of `torch.cond`. `weights` are named by module.
    """
    for _, graph in bodies(owner):
        for node in graph.node:
            if provenance.module_of(node) is None:
                owners = {name.rpartition(".")[0] for name in node.input if name in weights}
                module = owners.pop() if len(owners) == 1 else provenance.module_of(owner)
                describe(node, module, provenance.source_of(node) or provenance.source_of(owner))
            _add_modules_of_bodies(node, weights)


def name_batch(proto: onnx.ModelProto) -> None:
    """Names the dynamic first dimension `batch`; a saved program has a symbol such as `s77`."""
    firsts = [v.type.tensor_type.shape.dim[:1] for v in proto.graph.input]
    symbols = {dim.dim_param for dims in firsts for dim in dims if dim.dim_param}
    if len(symbols) != 1:
        return
    word = re.compile(rf"\b{re.escape(symbols.pop())}\b")
    for graph in graphs(proto.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = word.sub(BATCH, dim.dim_param)


def optimize(model: onnx_ir.Model, *, keep_batchnorm: bool) -> None:
    """Folds constants and applies onnxscript's rewrite rules, in place.

    The rules remove the Shape, Expand and CastLike chains of the raw export. They also fold
    BatchNormalization into the layer before it. With `keep_batchnorm` these nodes have, while the
    rules run, a domain that no rule matches.
    """
    with _hidden(model) if keep_batchnorm else _credited(model):
        from onnxscript import optimizer, rewriter

        passes.InlinePass()(model)
        for _ in range(_ROUNDS):
            optimizer.fold_constants_ir(model, onnx_shape_inference=True)
            rewriter.rewrite(model)
            passes.RemoveUnusedNodesPass()(model)
        for step in (
            passes.RemoveUnusedNodesPass(),
            passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
            passes.LiftSubgraphInitializersToMainGraphPass(),
            _merge_sizes,
            passes.CommonSubexpressionEliminationPass(),
            passes.OutputFixPass(),
            passes.NameFixPass(),
        ):
            step(model)


def _merge_sizes(model: onnx_ir.Model) -> None:
    """Merges equal integer initializers, so that equal nodes that read them can be merged."""
    unique: dict[tuple[object, bytes], onnx_ir.Value] = {}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.dtype != onnx_ir.DataType.INT64 or value.is_graph_output():
            continue
        first = unique.setdefault((tensor.shape.numpy(), tensor.tobytes()), value)
        if first is not value:
            value.replace_all_uses_with(first)
            model.graph.initializers.pop(name)


@contextmanager
def _hidden(model: onnx_ir.Model) -> Iterator[None]:
    for node in _batchnorms(model):
        node.domain = _HIDDEN
        model.opset_imports[_HIDDEN] = 1
    yield
    for node in model.graph.all_nodes():
        if node.domain == _HIDDEN:
            node.domain = ""
    model.opset_imports.pop(_HIDDEN, None)


@contextmanager
def _credited(model: onnx_ir.Model) -> Iterator[None]:
    """Attributes a folded pair to its first module: the convolution does the work.

    The rules keep the metadata of the second node, so it has those of the first while they run.
    """
    originals = {}
    for node in _batchnorms(model):
        before = node.inputs[0].producer() if node.inputs[0] is not None else None
        if before is not None and before.op_type in _FOLDING:
            originals[node] = dict(node.metadata_props)
            node.metadata_props.update(before.metadata_props)
    yield
    for node in _batchnorms(model):
        node.metadata_props.update(originals.get(node, {}))


def _batchnorms(model: onnx_ir.Model) -> list[onnx_ir.Node]:
    return [
        node
        for node in model.graph.all_nodes()
        if node.domain == "" and node.op_type == "BatchNormalization"
    ]


def dynamic_shapes(
    model: torch.nn.Module, inputs: Sequence[InputSpec], batched: bool
) -> tuple[Any, ...] | None:
    """Returns the open axes of each input for torch.export; None where all are fixed.

    Raises ModelError where `dynamic_axes` has another number of inputs.
    """
    own: Sequence[Mapping[int, str]] | None = getattr(model, "dynamic_axes", None)
    if own is None:
        axes = [dict[int, str]() for _ in inputs]
    else:
        _require_count(model, "dynamic_axes", len(own), len(inputs))
        axes = [dict(each) for each in own]
    if batched:
        axes = [{0: BATCH, **a} if s.shape else a for a, s in zip(axes, inputs, strict=True)]
    if not any(axes):
        return None
    shapes = tuple(each or None for each in axes)
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return shapes
    first = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*shapes[:first], shapes[first:])  # torch takes those of *args as one


def rename(graph: onnx_ir.Graph, model: torch.nn.Module) -> None:
    """Gives inputs and outputs of `graph` the `tensor_names` of the module, if it has any.

    Raises ModelError for another number of names.
    """
    names: tuple[Sequence[str], Sequence[str]] | None = getattr(model, "tensor_names", None)
    if names is None:
        return
    for values, own in zip((graph.inputs, graph.outputs), names, strict=True):
        _require_count(model, "tensor_names", len(own), len(values))
        for value, name in zip(values, own, strict=True):
            value.name = name


def _require_count(model: torch.nn.Module, attribute: str, own: int, needed: int) -> None:
    if own != needed:
        raise ModelError(
            f"{type(model).__name__}.{attribute} describes {own} tensors, and the model has "
            f"{needed}",
            "Describe each of them, in the order of forward.",
        )


def _convert_program(program: torch.export.ExportedProgram, options: ExportOptions) -> Conversion:
    args, kwargs = program.example_inputs or ((), {})
    if kwargs or not args or not all(isinstance(a, torch.Tensor) for a in args):
        raise ModelError(
            "the exported program's example inputs are not one or more tensors, by position",
            "Export it with such inputs: torch.export.export(model, (x,)).",
        )
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    firsts = [size for value in values for size in getattr(value, "shape", ())[:1]]
    if not (options.dynamic_batch or all(isinstance(size, int) for size in firsts)):
        raise UsageError(
            "the exported program has a dynamic batch, which --static-batch cannot fix",
            "Leave it out, or export the program anew without dynamic_shapes.",
        )
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema else []
        arguments = dict(zip(names, node.args, strict=False)) | node.kwargs
        if any(arguments.get(name) is True for name in _TRAINING):
            raise ModelError(
                f"the program was exported in training mode: {node.target} is set to train",
                "Call model.eval() before torch.export.export.",
            )
    inputs = [InputSpec(tuple(a.shape), str(a.dtype).removeprefix("torch.")) for a in args]
    module = program.module()
    exported = _export(program, args, None, options)
    conversion = _conversion(exported, lambda arrays: run(module, arrays), inputs, options)
    name_batch(conversion.proto)
    return conversion


def _conversion(program: Any, run: Any, inputs: Sequence[InputSpec], options: Any) -> Conversion:
    """Returns the simplified model; the weights of a large one go straight to a file."""
    model, files = program.model, None
    optimize(model, keep_batchnorm=options.keep_batchnorm)
    weights = (value.const_value for value in model.graph.initializers.values())
    nbytes = sum(weight.nbytes for weight in weights if weight is not None)
    if stored_weights.is_much(nbytes):
        files = TemporaryFolder()
        path = files.path / "converted.onnx"
        onnx_ir.save(model, path, external_data=f"{path.name}.data", size_threshold_bytes=_APART)
        proto = onnx.load(path, load_external_data=False)
    else:
        proto = onnx_ir.to_proto(model)
    annotate(proto)
    return Conversion(
        proto, run, lambda arrays: _values(program.exported_program, arrays), tuple(inputs), files
    )


def _export(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: Sequence[Any],
    shapes: Any,
    options: ExportOptions,
) -> torch.onnx.ONNXProgram:
    opset = options.opset or _OPSET
    with quiet(), _cache_for_a_time():
        try:
            program = torch.onnx.export(
                model,
                tuple(args),
                dynamo=True,
                dynamic_shapes=shapes,
                opset_version=opset,
                optimize=False,  # see tracer.exporters.torch.conversion
                verbose=False,
            )
        except ModuleNotFoundError:
            raise
        except Exception as error:  # any error of the exporter or the model
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            kind, fixed = type(model).__name__, _FIXED.search(str(cause))
            if fixed:
                what = f"{kind} fixes the batch of its input '{fixed['name']}' at {fixed['size']}"
                raise ModelError(what, _STATIC) from error
            raise _refusal(model, args, cause) from error
    assert program is not None
    return program


def _refusal(
    model: torch.nn.Module | torch.export.ExportedProgram, args: Sequence[Any], cause: BaseException
) -> ModelError:
    """Returns the error of a model that does not run, or that torch cannot export."""
    kind = type(model).__name__
    remedy = "Check --input-shape and --input-dtype first; --debug shows torch's own report."
    if isinstance(model, torch.nn.Module):
        try:
            with torch.no_grad(), quiet():
                model(*args)
        except Exception as error:  # the model's own, which tells more than the exporter's
            sizes = ", ".join("x".join(map(str, arg.shape)) for arg in args)
            return ModelError(f"{kind} does not run on {sizes}: {_reason(error)}", remedy)
    if type(cause).__name__.startswith("GuardOnDataDependent"):
        remedy = "It branches on values: use torch.where or torch.cond. --debug shows the report."
    elif returned := _RETURNED.search(str(cause)):
        what = f"torch cannot export {kind}: it does not know what that returns, {returned['name']}"
        if "Cache" in returned["name"]:
            return ModelError(what, "Have it return no cache: model.config.use_cache = False.")
        return ModelError(what, "Have it return tensors, in tuples, lists or dicts.")
    return ModelError(f"torch cannot export {kind}: {_reason(cause)}", remedy)


def _reason(error: BaseException) -> str:
    """Returns kind, first line, and place in the model's code of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = f"{type(error).__name__}: {lines[0].rstrip('.:') if lines else 'no reason given'}"
    places = [
        location(frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_installed(Path(frame.f_code.co_filename))
        and not frame.f_globals.get("__name__", "").startswith("tracer.")
    ]
    return f"{reason} ({places[-1]})" if places else reason


@contextmanager
def _cache_for_a_time() -> Iterator[None]:
    """Gives torch's compiler a folder that goes away; its own would stay, though it is empty."""
    if _CACHE in os.environ:
        yield
        return
    with TemporaryFolder() as folder, environment(_CACHE, str(folder)):
        yield


def _values(program: torch.export.ExportedProgram, arrays: Arrays) -> Mapping[str, NDArray[Any]]:
    """Returns the value of each call of the traced graph; torch names ONNX tensors alike."""
    values: dict[str, NDArray[Any]] = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            value = super().run_node(n)
            if isinstance(value, torch.Tensor):
                values[n.name] = value.detach().cpu().numpy()
            return value

    module = program.module()
    with torch.no_grad():
        Recorder(module).run(*_tensors(module, arrays))
    return values


def _tensors(module: torch.nn.Module, arrays: Arrays) -> list[torch.Tensor]:
    """Returns copies of the arrays, which a module may change, on its device."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    return [torch.tensor(array, device=device) for array in arrays]


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Sets evaluation mode within the context and restores the mode of each module."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
