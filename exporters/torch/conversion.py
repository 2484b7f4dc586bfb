"""Converts PyTorch models to ONNX by torch's dynamo exporter."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
import onnx_ir
import torch
from numpy.typing import NDArray

from tracer.errors import ModelError, UsageError
from tracer.exporters.records import Arrays, Conversion, ExportOptions, InputSpec, draw
from tracer.exporters.torch.annotate import annotate, name_batch
from tracer.exporters.torch.optimize import optimize
from tracer.exporters.torch.quiet import quiet
from tracer.exporters.torch.signature import dynamic_shapes, rename
from tracer.graph import footprint
from tracer.support.temporary import TemporaryFolder

_OPSET = 20  # the first with Gelu; torch implements none before 18
_APART = 1 << 10
"""Bytes from which a weight of a large model is external data: shapes stay in the graph."""
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_TRAINING = ("train", "training", "use_input_stats")
"""Arguments of ATen operators that are true in training mode."""
_STATIC = "Give --static-batch, or have the model work on any batch."
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
    with _evaluating(model):
        return _convert_module(model, inputs, options)


def _convert_module(
    model: torch.nn.Module, inputs: Sequence[InputSpec], options: ExportOptions
) -> Conversion:
    batched = options.dynamic_batch and any(spec.shape for spec in inputs)
    # Torch takes a batch of 1 for a constant, so the traced batch is at least 2.
    traced = [s.with_batch(max(2, s.shape[0])) if s.shape else s for s in inputs]
    program = _export(
        model,
        _tensors(model, draw(traced if batched else inputs, options.seed)),
        dynamic_shapes(model, inputs, batched),
        options,
    )
    rename(program.model.graph, model)
    return _conversion(program, lambda arrays: run(model, arrays), inputs, options)


def _convert_program(program: torch.export.ExportedProgram, options: ExportOptions) -> Conversion:
    args, kwargs = program.example_inputs or ((), {})
    if kwargs or not args or not all(isinstance(a, torch.Tensor) for a in args):
        raise ModelError(
            "the exported program's example inputs are not one or more tensors, by position",
            "Export it with such inputs: torch.export.export(model, (x,)).",
        )
    _check_program(program, options)
    inputs = [InputSpec(tuple(a.shape), str(a.dtype).removeprefix("torch.")) for a in args]
    module = program.module()
    exported = _export(program, args, None, options)
    conversion = _conversion(exported, lambda arrays: run(module, arrays), inputs, options)
    name_batch(conversion.proto)
    return conversion


def _check_program(program: torch.export.ExportedProgram, options: ExportOptions) -> None:
    inputs = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    firsts = [size for value in inputs for size in getattr(value, "shape", ())[:1]]
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


def _conversion(program: Any, run: Any, inputs: Sequence[InputSpec], options: Any) -> Conversion:
    optimize(program.model, keep_batchnorm=options.keep_batchnorm)
    proto, files = _serialized(program.model)
    annotate(proto)
    return Conversion(
        proto, run, lambda arrays: _values(program.exported_program, arrays), tuple(inputs), files
    )


def _serialized(model: onnx_ir.Model) -> tuple[onnx.ModelProto, TemporaryFolder | None]:
    """Returns the protobuf, and for a large model the folder of its external data.

    The weights of a large model go straight from torch's tensors to the file.
    """
    weights = (value.const_value for value in model.graph.initializers.values())
    if not footprint.is_much(sum(weight.nbytes for weight in weights if weight is not None)):
        return onnx_ir.to_proto(model), None
    files = TemporaryFolder()
    path = files.path / "converted.onnx"
    onnx_ir.save(model, path, external_data=f"{path.name}.data", size_threshold_bytes=_APART)
    return onnx.load(path, load_external_data=False), files


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
                optimize=False,  # see tracer.exporters.torch.optimize
                verbose=False,
            )
        except ModuleNotFoundError:
            raise
        except Exception as error:  # any error of the exporter or the model
            raise _failure(model, error) from error
    assert program is not None
    return program


@contextmanager
def _cache_for_a_time() -> Iterator[None]:
    """Gives torch's compiler a folder that goes away; its own would stay, though it is empty."""
    if _CACHE in os.environ:
        yield
        return
    with TemporaryFolder() as folder:
        os.environ[_CACHE] = str(folder)
        try:
            yield
        finally:
            del os.environ[_CACHE]


def _failure(model: object, error: Exception) -> ModelError:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    kind = type(model).__name__
    fixed = _FIXED.search(str(cause))
    if fixed:
        return ModelError(
            f"{kind} fixes the batch of its input '{fixed['name']}' at {fixed['size']}", _STATIC
        )
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    reason = lines[0].rstrip(".:") if lines else "no reason given"
    return ModelError(
        f"torch cannot export {kind}: {type(cause).__name__}: {reason}",
        "Check --input-shape first; --debug shows torch's own report.",
    )


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


def run(module: torch.nn.Module, arrays: Arrays) -> list[NDArray[Any]]:
    """Returns the outputs of one inference in evaluation mode."""
    with torch.no_grad(), _evaluating(module):
        outputs = module(*_tensors(module, arrays))
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [leaf.cpu().numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]


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
