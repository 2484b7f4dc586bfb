"""Opens whatever a user names as a model: a file, or code whose model is exported on the fly.

Code is `FILE.py:NAME`, `package.module:NAME` or `FILE.pt2`.
"""

import importlib
import importlib.util
import inspect
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from tracer.errors import InputError, ModelError, TracerError, UsageError
from tracer.exporters.records import all_exporters, exporter_of
from tracer.graph import loading, user_operators
from tracer.graph.model import Model
from tracer.graph.operators import is_qonnx_quantizer
from tracer.support.imports import import_file, not_installed
from tracer.text import suggest

_ANY_SEED = 2**32
"""numpy takes seeds below this."""
_FORM = "SOURCE is FILE.py:NAME, package.module:NAME or FILE.pt2."


@dataclass(frozen=True, slots=True)
class Code:
    """The model that `name` names, as FILE.py:NAME or FILE.pt2, with the shapes of its inputs.

    The batch is first; None for the model's own `input_shape`. `input_dtype` is the element type of
    all inputs, or one for each. The model is called with `arguments` and filled with `weights`;
    nothing is unpickled without `trust`. `operators` is a file with operators of the user's own,
    also for a file of ONNX.
    """

    name: str
    input_shape: Sequence[Sequence[int]] | None = None
    input_dtype: str | Sequence[str] = "float32"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None
    trust: bool = False
    operators: Path | None = None

    def __str__(self) -> str:
        """Returns the name."""
        return self.name


ModelSource: TypeAlias = "loading.OnnxSource | Code"
"""What a user names as a model."""


def open_subject(subject: ModelSource) -> Model:
    """Returns the model that a user named: a Model, a file, or code, which is then run.

    Raises UsageError for what a file of ONNX has itself, and the errors of `loading.open_model` and
    `pipeline.cached_export`.
    """
    if isinstance(subject, str | Path):
        subject = Code(str(subject))
    if not isinstance(subject, Code):
        return loading.open_model(subject)
    if subject.operators is not None:
        own = user_operators.load(subject.operators)
        return replace(open_subject(replace(subject, operators=None)), operators=own)
    if names_code(subject.name):
        # imports onnxruntime, which counting spares
        from tracer.exporters.pipeline import cached_export

        return cached_export(subject)
    if subject.input_shape is not None:
        raise UsageError(
            f"{subject.name}: an ONNX model declares the shapes of its inputs",
            "Size what it leaves open: --dim x:2=48.",
        )
    if subject != Code(subject.name):
        raise UsageError(
            f"{subject.name} is an ONNX model, not code",
            "--arg, --input-dtype, --trust and --weights (in quantize --weights-file) are for "
            "FILE.py:NAME.",
        )
    return loading.open_model(subject.name)


def load_source(
    source: object,
    arguments: Mapping[str, Any] | None = None,
    *,
    weights: Path | None = None,
    framework: str | None = None,
    trust: bool = False,
    seed: int | None = None,
) -> object:
    """Returns the model that `source` names, called with `arguments`, filled with `weights`.

    A live model is returned as it is; it takes neither.

    Runs the code of the named file or package. NAME is a class, a factory or an instance, and may
    be a path of attributes (`Nets.small`). Nothing is unpickled without `trust`. With a `seed`, the
    global random numbers that this code draws start there, and continue afterwards as they were.

    Raises UsageError, InputError or ModelError if the name, its arguments or the weights do not
    fit, or if the result is no model.
    """
    if not isinstance(source, str):
        if arguments or weights:
            raise UsageError("args and weights apply to a model that is named, as in FILE.py:NAME")
        return source
    try:
        model = _model(source, dict(arguments or {}), trust=trust, seed=seed)
    except ModuleNotFoundError as error:
        raise not_installed(source, error) from error
    exporter = exporter_of(model, framework)
    if weights is not None:
        try:
            exporter.load_weights(model, weights, trust=trust)
        except ModuleNotFoundError as error:
            raise not_installed(f"reading {weights}", error) from error
    return model


def names_code(source: str) -> bool:
    """Returns whether `source` has the form `FILE.py:NAME`, `package.module:NAME` or `FILE.pt2`."""
    place, _, path = source.rpartition(":")
    named = bool(place) and all(part.isidentifier() for part in path.split("."))
    return (named and not Path(source).exists()) or source.endswith((".py", ".pt2"))


def runs_in_framework(source: str) -> bool:
    """Returns whether `source` names code that its framework can run module by module.

    An exported program (.pt2) has no modules: it is profiled as ONNX.
    """
    return names_code(source) and not source.endswith(".pt2")


@contextmanager
def seeded(seed: int | None, source: Path | None = None) -> Iterator[None]:
    """Draws from `seed` inside: Python's, numpy's (Chainer's as well) and torch's generators.

    Afterwards the generators are as they were. With `seed` None nothing is changed. `source` is
    a file that is about to be imported. If its text names torch, torch is imported first: the file
    may make its model, or seed torch itself, while it is imported.
    """
    if seed is None:
        yield
        return
    if source is not None and re.search(rb"\btorch\b", source.read_bytes()):
        with suppress(ModuleNotFoundError):  # importing the source says what is missing
            importlib.import_module("torch")
    before = random.getstate(), np.random.get_state()  # Chainer draws from numpy's global generator
    random.seed(seed)
    np.random.seed(seed % _ANY_SEED)
    torch: Any = sys.modules.get("torch")
    state, cards = None, list[Any]()
    if torch is not None:
        state = torch.get_rng_state()
        cards = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        if torch is not None:
            torch.set_rng_state(state)
        if cards:
            torch.cuda.set_rng_state_all(cards)


def _model(source: str, arguments: dict[str, Any], *, trust: bool, seed: int | None) -> object:
    if source.endswith(".pt2"):
        if arguments:
            raise UsageError(f"{source}: an exported program takes no --arg")
        from tracer.exporters.torch.archive import load_program  # needs torch

        return load_program(Path(source), trust=trust)
    file, _, path = source.rpartition(":")
    if not file:
        hint, suffix = _FORM, Path(source).suffix
        if suffix == ".py" and Path(source).is_file():
            hint = f"Add its name: {source}:NAME. {_alternatives(_module(source))}."
        elif suffix in (".pt", ".pth", ".npz", ".safetensors"):
            hint = f"These are weights: name their model, and give {source} as its weights."
        raise UsageError(f"'{source}' names no model", hint)
    with seeded(seed, _located(file)):
        module = target = _module(file)
        for name in path.split("."):
            if not hasattr(target, name):
                owner = "" if target is module else f" '{getattr(target, '__name__', target)}'"
                near = suggest(name, vars(target))
                hint = f"{near}{_alternatives(target)}."
                raise InputError(f"{file}{owner} has no '{name}'", hint)
            target = getattr(target, name)
        return _model_of(target, source, arguments)


def _model_of(target: Any, source: str, arguments: dict[str, Any]) -> object:
    """Returns the model that `target` is or makes."""
    if any(exporter.claims(target) for exporter in all_exporters()):
        if arguments:
            raise UsageError(f"{source} is an instance and takes no --arg")
        return target
    if not callable(target):
        raise UsageError(f"{source} is {type(target).__name__}, not a model", _FORM)
    signature = inspect.signature(target)
    parameters = signature.parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    missing = [p.name for p in named if p.default is p.empty and p.name not in arguments]
    if missing:
        example = " ".join(f"--arg {name}=VALUE" for name in missing)
        raise UsageError(f"{source} needs arguments: {', '.join(missing)}", f"Give {example}.")
    try:
        signature.bind(**arguments)
    except TypeError as error:
        takes = ", ".join(str(p) for p in named) or "none"
        raise UsageError(f"{source}: {error}", f"Its arguments: {takes}.") from error
    try:
        return target(**arguments)
    except (ModuleNotFoundError, TracerError):  # a model may raise these itself
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise _raised(source, error) from error


def _located(name: str) -> Path | None:
    """Returns the file of a path or a module, if it has one.

    Puts the working directory on the path. Raises InputError where there is no file or module.
    """
    for exporter in all_exporters():
        exporter.prepare()
    cwd = str(Path.cwd())
    if cwd not in sys.path:
        sys.path.insert(0, cwd)  # like `python -m`; models import neighbouring files
    if _is_path(name):
        if not Path(name).is_file():
            raise InputError(f"{name}: no such file", _FORM)
        return Path(name)
    try:
        spec = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        spec = None
    if spec is None:
        raise InputError(f"there is no module '{name}'", _FORM)
    return Path(spec.origin) if spec.has_location and spec.origin else None


def _is_path(name: str) -> bool:
    return Path(name).suffix == ".py" or len(Path(name).parts) > 1


def _module(name: str) -> ModuleType:
    """Imports a path by path, or a module by name."""
    _located(name)
    try:
        return import_file(Path(name)) if _is_path(name) else importlib.import_module(name)
    except (ModuleNotFoundError, TracerError):
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise _raised(name, error) from error


def _raised(place: str, error: BaseException) -> ModelError:
    reason = str(error).splitlines()[0].rstrip(".") if str(error) else ""
    return ModelError(
        f"{place} raised {type(error).__name__}: {reason}".rstrip(": "), "--debug shows where."
    )


def _alternatives(owner: Any) -> str:
    """Returns text that lists the models of a module and its own callables."""
    home = getattr(owner, "__module__", getattr(owner, "__name__", None))
    names = [
        name
        for name, value in vars(owner).items()
        if not name.startswith("_")
        and (
            (callable(value) and getattr(value, "__module__", None) == home)
            or any(exporter.claims(value) for exporter in all_exporters())
        )
    ]
    return f"It has {', '.join(names)}" if names else "It defines no class or function"


def runnable_form(model: Model) -> Model:
    """Returns `model` with a stand-in that onnxruntime can run, and a note; itself without QONNX.

    Raises ModelError where the opset is too old and onnx cannot convert the graph, and for nodes
    that ONNX's operators do not express.
    """
    rounding = [node for node in model.nodes if is_qonnx_quantizer(node.domain, node.op_type)]
    if not rounding or model.stand_in is not None:
        return model
    from tracer.quantization.from_qonnx import with_stand_in  # 0.01 s, and few models need it

    return with_stand_in(model, rounding)
