"""What the functions of the API share: their child process, and fields of their records.

A function takes one record of all its arguments: its fields are the signature that users see, the
options of its command, and the checks. The modules with the records import nothing heavy: this
process loads what the results are made of while the child works, and never what the work needs.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tracer.analyzers.options import ADDITION_CONVENTIONS, DEFAULT_ENERGY_MODEL
from tracer.containment import calls
from tracer.errors import UsageError
from tracer.exporters import frameworks
from tracer.support.arguments import (
    RULES,
    TEXT,
    Rule,
    amount,
    check_fields,
    maybe,
    option,
    swept,
)
from tracer.whatif.options import METRIC

if TYPE_CHECKING:
    from tracer.inputs.request import Samples
    from tracer.limits import Limits

INPUT, RUNS, ONNX = "Input", "Runs", "ONNX"
"""Sections of the help of several commands."""


@dataclass(frozen=True, kw_only=True)
class Contained:
    """The arguments of every function that runs in a child process, checked by their rules.

    `seconds` and `process_bytes` of `limits` limit the child; `in_process` keeps the call in this
    process.
    """

    limits: Limits | None = None
    in_process: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for a value that is not allowed."""
        check_fields(self)


_Parameters = ParamSpec("_Parameters")
_Record = TypeVar("_Record", bound=Contained)
_Result = TypeVar("_Result")


def contained(
    record: Callable[_Parameters, _Record],
) -> Callable[[Callable[[_Record], _Result]], Callable[_Parameters, _Result]]:
    """Makes a function of a record a function of its fields, which runs in a child process.

    Receivers keep what they are given, and the client of a cluster has its connections, so they
    keep the call in this process.
    """

    def decorate(function: Callable[[_Record], _Result]) -> Callable[_Parameters, _Result]:
        returned = inspect.signature(function).return_annotation
        signature = inspect.signature(record).replace(return_annotation=returned)

        @functools.wraps(function)
        def call(*args: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
            signature.bind(*args, **named)
            chosen = record(*args, **named)
            is_client = not isinstance(getattr(chosen, "cluster", None), str | None)
            if chosen.in_process or getattr(chosen, "receivers", None) or is_client:
                return function(chosen)
            most = chosen.limits
            seconds, nbytes = (most.seconds, most.process_bytes) if most else (None, None)
            there = {**vars(chosen), "in_process": True}
            return calls.contained(call, there, seconds, nbytes, _load_results)

        call.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n{_described(record)}\n    "
        vars(call)["__signature__"] = signature
        return call

    return decorate


def _load_results() -> None:
    importlib.import_module("tracer.records.trace")


def _described(record: Any) -> str:
    """Returns a line for each field with a help, indented as a docstring is."""
    lines = (
        textwrap.fill(f"{each.name}: {each.metadata['help']}", 96, subsequent_indent="    ")
        for each in fields(record)
        if "help" in each.metadata
    )
    return textwrap.indent("\n".join(lines), "    ")


def batch(default: str, group: str = INPUT) -> Any:
    """One batch size; `default` says which without it."""
    return option(f"Batch size.  [default: {default}]", None, group=group)


def dims(group: str = INPUT, factory: Any = MISSING) -> Any:
    """Sizes of open dimensions, by symbol or `INPUT:AXIS`."""
    return option(
        "Size of an open dimension, by its symbol or as INPUT:AXIS, e.g. --dim sequence=128 or "
        "--dim x:2=48. Repeatable.  [default: the usual size of such an input]",
        None, group=group, flag="--dim", multiple=True, convert=dict, factory=factory,
    )  # fmt: skip


def convention(group: str = "Work") -> Any:
    """How additions are counted (see `tracer.analyzers.cost`)."""
    return option(
        "How the additions of a convolution are counted; see docs/counting.md.", "plain",
        group=group, reads=("choice", *ADDITION_CONVENTIONS),
    )  # fmt: skip


def energy(default: str, group: str) -> Any:
    """The energy model of the column `energy`; `default` says which without it."""
    return option(
        "Energy model that fills the column energy, from the operations of each node and the "
        f"types of its operands; see docs/energy.md.  [default: {default}]",
        None, group=group, reads=("energy",),
    )  # fmt: skip


PHASES = "Phases of a language model"


def prefill() -> Any:
    """Tokens of the prefill of a decoder with a cache."""
    return option(
        "Look at a prefill of N tokens, the model's cache being empty.", None, group=PHASES
    )


def decode() -> Any:
    """Steps of one token after the prefill."""
    return option("Look at N steps of one token after the prefill as well.", None, group=PHASES)


def past() -> Any:
    """Tokens in the cache at decode steps, one number or several."""
    return option(
        "Tokens in the cache at decode steps, e.g. 0,512,2048.  [default: those at the middle "
        "step]",
        None, group=PHASES, rule=swept(RULES["past"]),
    )  # fmt: skip


SOURCES = (
    "digits, cifar10, mnist, an .npz, .parquet or .tar file, text:FILE, FILE.py:NAME, or a folder "
    "of images or test_data_sets"
)


def data(group: str, default: Any = MISSING, flag: str = "--data") -> Any:
    """A data set; required without a `default`."""
    text = f"Data set: {SOURCES}. digits:train is the training split of digits, digits*28 repeats "
    return option(
        f"{text}digits 28 times.", default, group=group, flag=flag, metavar="DATA", reads=()
    )


def folder(group: str) -> Any:
    """The folder of data sets with a name."""
    text = "Folder with the files of cifar10 and mnist."
    return option(text, "data", group=group, kw_only=True, flag="--data-dir", metavar="FOLDER")


def limit(group: str = INPUT, flag: str = "--limit") -> Any:
    """Samples of the data set."""
    return option("Samples of --data to use.  [default: all]", None, group=group, flag=flag)


def samples_per_inference(group: str, default: int) -> Any:
    """One batch size, of samples of a data set."""
    return option("Samples per inference.", default, group=group)


def test(default: str, group: str) -> Any:
    """The data set to measure accuracy on; `default` says which without it."""
    text = f"Data set for measuring accuracy.  [default: {default}]"
    return option(text, None, group=group, metavar="DATA", reads=())


def test_limit(group: str) -> Any:
    """Samples of the data set to measure accuracy on."""
    return option("Samples for measuring accuracy.  [default: all]", None, group=group)


def metric(group: str, reference: str = "with wide accumulators") -> Any:
    """The accuracy metric; some compare with the outputs of a `reference`."""
    text = METRIC.replace("with wide accumulators", reference)
    return option(text, None, group=group, metavar="NAME")


def energy_of_sums(group: str) -> Any:
    """The energy model of narrow accumulators."""
    text = "Energy model; see docs/energy.md."
    return option(text, DEFAULT_ENERGY_MODEL, group=group, rule=TEXT, reads=("energy",))


def inputs(group: str) -> Any:
    """A file or folder of input values."""
    text = "Input values: an .npz file or a test_data_set folder.  [default: random]"
    return option(text, None, group=group, flag="--inputs", reads=("path",))


def seed(group: str = INPUT) -> Any:
    """The seed of random inputs."""
    return option("Seed of random inputs.", 0, group=group, shown=True)


def threads(group: str = ONNX) -> Any:
    """Threads per operator of onnxruntime."""
    return option("Threads per operator.  [default: all cores]", 0, group=group)


def threads_of_interpreter(group: str) -> Any:
    """Threads per operator of the interpreter."""
    return option(
        "Threads per operator, at most one for each CPU.  [default: as BLAS is set]", 0,
        group=group,
    )  # fmt: skip


def optimization(default: str | None = "all", group: str = ONNX) -> Any:
    """The optimisation level; None is that of the executor, which is "all"."""
    return option(
        "Graph optimisation level of onnxruntime.", default, group=group, typed="all",
        shown=True, reads=("optimization",),
    )  # fmt: skip


def register(group: str = ONNX) -> Any:
    """Libraries of custom operators."""
    return option(
        "Library of custom operators for onnxruntime; its code is executed. Repeatable.", (),
        group=group, multiple=True, metavar="FILE.so",
    )  # fmt: skip


def or_none(value: Any) -> Any:
    """Returns None for an option that was not set."""
    return value or None


def operands(group: str) -> Any:
    """Formats of the operands of float accumulators."""
    return option(
        "Formats that operands of float accumulators are cast to: bf16, 'conv*=fp8-e4m3,*=bf16'.  "
        "[default: the type of the graph]",
        None, group=group, kw_only=True, metavar="FORMATS",
    )  # fmt: skip


def args(group: str, factory: Any = MISSING, rule: Rule | None = None) -> Any:
    """Arguments of a class or factory."""
    return option(
        "Argument of the class or factory, e.g. --arg depth=32. Repeatable.", None,
        group=group, flag="--arg", multiple=True, convert=dict, factory=factory, rule=rule,
    )  # fmt: skip


def weights(group: str, flag: str = "--weights") -> Any:
    """The file of weights of a model of a framework."""
    text = "File of weights: safetensors or a state dict (torch), .npz (Chainer)."
    return option(text, None, group=group, flag=flag)


def trust(group: str) -> Any:
    """Whether weights may be unpickled."""
    text = "Allow unpickling of weights. This can run any code."
    return option(text, False, group=group)


def framework(group: str) -> Any:
    """The framework of a model that is named by its code."""
    return option(
        "Framework of FILE.py:NAME.  [default: detected]", None,
        group=group, reads=("choice", *frameworks()),
    )  # fmt: skip


def input_shape(default: str, group: str) -> Any:
    """Shapes of the inputs, batch first."""
    return option(
        "Shape of an input, batch first. Repeat it for further inputs.  "
        f"[default: {default}]",
        None, group=group, multiple=True, metavar="1,3,32,32", reads=(),
        convert=lambda texts: [_shape(text) for text in texts] or None,
    )  # fmt: skip


def input_dtype(group: str) -> Any:
    """The element type of all inputs, or one for each."""
    return option(
        "Element type of all inputs; repeated, one for each input.  [default: float32]", "float32",
        group=group, multiple=True, metavar="DTYPE", typed=None, reads=(),
        convert=lambda names: names[0] if len(names) == 1 else names or "float32",
    )  # fmt: skip


def _shape(text: str) -> tuple[int, ...]:
    """Returns the sizes of `1,3,32,32`. Raises UsageError where the text is no shape."""
    try:
        sizes = text.replace("x", ",").removesuffix(",")
        return tuple(int(size) for size in sizes.split(",")) if sizes else ()
    except ValueError as error:
        raise UsageError(
            f"--input-shape {text} is not a shape", "Give sizes with the batch first: 1,3,32,32."
        ) from error


@dataclass(frozen=True)
class Feeds:
    """Options that choose the inputs of a run: files, or samples of a data set."""

    inputs: Sequence[Path] = option(
        "Input values: an .npz file or a test_data_set folder; any number of them, and folders of "
        "them.  [default: random]",
        (), group=INPUT, multiple=True, rule=RULES["register"],
    )  # fmt: skip
    data: str | None = data(INPUT, None)
    folder: Path = folder(INPUT)
    limit: int | None = limit()


def feeds(
    inputs: Sequence[Path], data: str | None, folder: Path, limit: int | None
) -> Samples | Sequence[Path]:
    """Returns the samples of `--data`, or the files of `--inputs`.

    Raises UsageError for options that exclude each other.
    """
    from tracer.inputs.request import Samples

    if data is None and limit is not None:
        raise UsageError("--limit needs --data", "Give --data as well.")
    if data is not None and inputs:
        raise UsageError("--inputs and --data together", "Leave out one of them.")
    return inputs if data is None else Samples(data, limit, folder)


def provider_options(factory: Any = MISSING) -> Any:
    """Options of the provider by name."""
    return option(
        "Option of the provider, e.g. --provider-option device_type=CPU. Repeatable.", None,
        group=ONNX, flag="--provider-option", multiple=True, convert=dict, factory=factory,
    )  # fmt: skip


TOLERANCE = "Tolerance"


def rtol(default: str) -> Any:
    """The allowed error as a share."""
    return option(
        f"Error that is allowed, as a share of the values.  [default: {default}]", None,
        group=TOLERANCE, rule=maybe(amount()),
    )  # fmt: skip


def atol(default: str) -> Any:
    """The allowed error beside that share."""
    text = f"Error that is allowed besides.  [default: {default}]"
    return option(text, None, group=TOLERANCE, rule=maybe(amount()))


def depth(group: str) -> Any:
    """Levels of modules."""
    return option(
        "Module levels to keep with --by module; deeper levels are summed.  [default: all]", None,
        group=group,
    )  # fmt: skip
