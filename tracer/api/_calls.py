"""What the functions of the API share: their child process, and fields of their records.

A function takes one record of all its arguments: its fields are the signature that users see, the
options of its command, and the checks. The modules with the records import nothing heavy: this
process loads what the results are made of while the child works, and never what the work needs.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast

from tracer.analyzers.options import ADDITION_CONVENTIONS, DEFAULT_ENERGY_MODEL, METRIC
from tracer.containment import activity, calls
from tracer.errors import TracerError, UsageError
from tracer.exporters import frameworks
from tracer.support.arguments import (
    RULES,
    TEXT,
    amount,
    check_declared,
    check_fields,
    in_python,
    maybe,
    names_of_options,
    option,
    swept,
)
from tracer.support.temporary import TemporaryFolder
from tracer.text import suggest

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tracer.inputs.request import Samples
    from tracer.limits import Limits

INPUT, RUNS, ONNX = "Input", "Runs", "ONNX"
"""Sections of the help of several commands."""


@dataclass(frozen=True, kw_only=True)
class Contained:
    """The arguments of every function that runs in a child process, checked by their rules.

    `seconds` and `process_bytes` of `limits` limit the child; `in_process` keeps the call in this
    process. `progress` is called as the work goes on; see `progress_bar` for True, False and None.
    """

    progress: activity.Progress | bool | None = None
    limits: Limits | None = None
    in_process: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for a value that is not allowed."""
        check_fields(self)

    @property
    def report(self) -> activity.Progress:
        """What is called as the work goes on."""
        return self.progress if callable(self.progress) else activity.silent


FORMER = {
    "feeds": "inputs", "folder": "data_dir", "arguments": "args", "seconds": "max_seconds",
}  # fmt: skip
"""Former words of arguments in Python, and those that they share with the command line."""

Data: TypeAlias = "str | Path | Mapping[str, ArrayLike]"
"""A data set by its name or file, or arrays by the names of the inputs, with a row a sample."""
_DATA = ("inputs", "data", "calibrate", "test")
"""Arguments that may be arrays."""

_Parameters = ParamSpec("_Parameters")
_Record = TypeVar("_Record", bound=Contained)
_Result = TypeVar("_Result")
_Class = TypeVar("_Class")


def todays_words(record: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments by the fields of `record`; a former word gives a DeprecationWarning."""
    known = {each.name for each in fields(record)}
    words = {}
    for name, value in named.items():
        new = FORMER.get(name)
        if new in known and name not in known and new not in named:
            warnings.warn(f"{name} is now {new}", DeprecationWarning, stacklevel=3)
            words[new] = value
        else:
            words[name] = value
    return words


def with_former_words(record: type[_Class]) -> type[_Class]:
    """Lets a record take former words as well."""
    init: Callable[..., None] = vars(record)["__init__"]

    @functools.wraps(init)
    def construct(self: _Class, *args: Any, **named: Any) -> None:
        init(self, *args, **todays_words(record, named))

    type.__setattr__(record, "__init__", construct)
    return record


def contained(
    record: Callable[_Parameters, _Record],
) -> Callable[[Callable[[_Record], _Result]], Callable[_Parameters, _Result]]:
    """Makes a function of a record a function of its fields, which runs in a child process.

    Receivers keep what they are given, and the client of a cluster has its connections, so they
    keep the call in this process.
    """
    arguments: Any = record
    check_declared(arguments)
    call_record: Callable[..., _Record] = record

    def decorate(function: Callable[[_Record], _Result]) -> Callable[_Parameters, _Result]:
        returned = inspect.signature(function).return_annotation
        signature = inspect.signature(record).replace(return_annotation=returned)

        @functools.wraps(function)
        def call(*args: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
            words: Any = todays_words(record, named)
            unknown = sorted(words.keys() - signature.parameters.keys())
            try:
                given = signature.bind(*args, **words).arguments
            except TypeError as error:
                what = f"got an unexpected keyword argument '{unknown[0]}'" if unknown else error
                hint = _hint(record, unknown)
                raise TypeError(f"{function.__name__}() {what}. {hint}".rstrip(" .")) from None
            with _python_words(arguments), _arrays_in_files(arguments, given) as stored:
                result: Any = run_call(call_record(**stored))
            before, words = getattr(result, "notes", ()), _words(arguments)
            notes = tuple(in_python(note, words) for note in before)
            return cast("_Result", replace(result, notes=notes) if notes != before else result)

        def run_call(chosen: _Record) -> _Result:
            is_client = not isinstance(getattr(chosen, "cluster", None), str | None)
            with activity.progress_bar(chosen.progress) as progress:
                if chosen.in_process or getattr(chosen, "receivers", None) or is_client:
                    return function(replace(chosen, progress=progress))
                most = chosen.limits
                seconds, nbytes = (most.seconds, most.process_bytes) if most else (None, None)
                there = {**vars(chosen), "in_process": True, "progress": progress}
                load_results: Any = partial(importlib.import_module, "tracer.records.trace")
                return calls.contained(call, there, seconds, nbytes, load_results)

        described = "\n".join(
            textwrap.fill(f"{each.name}: {each.metadata['help']}", 96, subsequent_indent="    ")
            for each in fields(arguments)
            if "help" in each.metadata
        )
        own = (function.__doc__ or "").rstrip()
        call.__doc__ = f"{own}\n\n{textwrap.indent(described, '    ')}\n    "
        vars(call)["__signature__"] = signature
        return call

    return decorate


_LIMITS = {
    "--max-seconds": "limits.seconds", "--max-memory": "limits.process_bytes",
    "--max-tensor": "limits.tensor_bytes", "--max-live": "limits.live_bytes",
    "--max-trips": "limits.loop_trips",
}  # fmt: skip
"""Options of every command, and what they are in Python."""
is_typed = ContextVar("is_typed", default=False)
"""Whether calls are those of a command line: their errors name its options, as they were typed."""


def _words(record: Any) -> Mapping[str, str]:
    """Returns what the options of a command are in Python; none where Python gets no message."""
    if activity.page() is None and not is_typed.get():  # in a child, its parent does it
        return _LIMITS | names_of_options(record)
    return {}


@contextmanager
def _python_words(record: Any) -> Iterator[None]:
    """Names arguments of a function, not options of its command, in errors that Python gets."""
    try:
        yield
    except TracerError as error:
        names = _words(record)
        error.what, error.hint = (in_python(text, names) for text in (error.what, error.hint))
        raise


@contextmanager
def _arrays_in_files(record: Any, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields arguments whose inputs and data, where they are arrays by name, are in files now."""
    named = {f.name for f in fields(record) if f.name in _DATA and f.metadata.get("rule") is None}
    arrays = {name: given[name] for name in named if isinstance(given.get(name), Mapping)}
    if not arrays:
        yield given
        return
    from tracer.inputs.feedset import store_arrays  # numpy, which other calls may not need

    with TemporaryFolder() as folder:
        files = {name: store_arrays(each, folder / f"{name}.npz") for name, each in arrays.items()}
        try:
            yield {**given, **files}
        except TracerError as error:  # it names the argument, not a file that no caller knows
            what = error.what
            for name, file in files.items():
                what = what.replace(str(file), name)
            raise type(error)(what, error.hint) from error


def file_of(data: Data) -> str | Path:
    """Returns the name of data: arrays are in a file, once a call has begun."""
    assert not isinstance(data, Mapping)
    return data


def _hint(record: Any, unknown: Iterable[str]) -> str:
    """Returns which argument was meant: one of a similar name, or a public record that it is in."""
    package = importlib.import_module("tracer")
    for name in unknown:
        for each in fields(record):
            part: Any = each.metadata.get("part")
            if part is None or name not in (own.name for own in fields(part)):
                continue
            for word in set(re.findall(r"\w+", str(each.type))).intersection(package.__all__):
                public = getattr(package, word)
                known = is_dataclass(public) and name in (own.name for own in fields(public))
                return f"Give {each.name}=tracer.{word}({f'{name}=' if known else ''}…)"
        meant = names_of_options(record).get("--" + name.replace("_", "-"))
        return f"Give {meant}=…" if meant else suggest(name, (f.name for f in fields(record)))
    places = [each.name for each in fields(record) if not each.kw_only]
    return f"Without a name it takes: {', '.join(places)}"


def by_name(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Returns values by the names of a repeated option. Raises UsageError for one given twice."""
    named = dict[str, Any]()
    for name, value in pairs:
        if name in named:
            raise UsageError(f"'{name}' is given twice", "Give each name once.")
        named[name] = value
    return named


# Options that several records declare, each where it is called: `group` is its section of the help.

dims = partial(
    option,
    "Size of an open dimension, by its symbol or as INPUT:AXIS, e.g. --dim sequence=128 or "
    "--dim x:2=48. Repeatable.  [default: the usual size of such an input]",
    None, group=INPUT, flag="--dim", multiple=True, convert=by_name, common=True,
)  # fmt: skip
convention = partial(
    option, "How the additions of a convolution are counted; see 'tracer docs counting'.", "plain",
    group="Work", reads=("choice", *ADDITION_CONVENTIONS),
)  # fmt: skip

PHASES = "Phases of a language model"
prefill = partial(
    option, "Look at a prefill of N tokens, the model's cache being empty.", None, group=PHASES
)
decode = partial(
    option, "Look at N steps of one token after the prefill as well.", None, group=PHASES
)
past = partial(
    option,
    "Tokens in the cache at decode steps, e.g. 0,512,2048.  [default: those at the middle step]",
    None, group=PHASES, rule=swept(RULES["past"]),
)  # fmt: skip

SOURCES = (
    "digits, cifar10, mnist, an .npz, .parquet or .tar file, text:FILE, FILE.py:NAME, or a folder "
    "of images or test_data_sets"
)
data = partial(
    option,
    f"Data set: {SOURCES}. digits:train is the training split of digits, digits*28 repeats digits "
    "28 times.",
    flag="--data", metavar="DATA", reads=(), common=True,
)  # fmt: skip
data_dir = partial(
    option, "Folder with the files of cifar10 and mnist.", "data", kw_only=True, metavar="FOLDER"
)
limit = partial(option, "Samples of --data to use.  [default: all]", None)
samples_per_inference = partial(option, "Samples per inference.")
test_limit = partial(option, "Samples for measuring accuracy.  [default: all]", None)
energy_of_sums = partial(
    option, "Energy model; see 'tracer docs energy'.", DEFAULT_ENERGY_MODEL,
    rule=TEXT, reads=("energy",),
)  # fmt: skip
inputs = partial(
    option, "Input values: an .npz file or a test_data_set folder.  [default: random]", None,
    reads=("path",), common=True,
)  # fmt: skip
seed = partial(option, "Seed of random inputs.", 0, group=INPUT, shown=True)
threads = partial(option, "Threads per operator.  [default: all cores]", 0, group=ONNX)
threads_of_interpreter = partial(
    option, "Threads per operator, at most one for each CPU.  [default: as BLAS is set]", 0
)
optimization = partial(
    option, "Graph optimisation level of onnxruntime.", group=ONNX, typed="all",
    shown=True, reads=("optimization",),
)  # fmt: skip
register = partial(
    option, "Library of custom operators for onnxruntime; its code is executed. Repeatable.", (),
    group=ONNX, multiple=True, metavar="FILE.so",
)  # fmt: skip
operands = partial(
    option,
    "Formats that operands of float accumulators are cast to: bf16, 'conv*=fp8-e4m3,*=bf16'.  "
    "[default: the type of the graph]",
    None, kw_only=True, metavar="FORMATS",
)  # fmt: skip
args = partial(
    option, "Argument of the class or factory, e.g. --arg depth=32. Repeatable.", None,
    flag="--arg", multiple=True, convert=by_name,
)  # fmt: skip
weights = partial(
    option, "File of weights: safetensors or a state dict (torch), .npz (Chainer).", None
)
trust = partial(option, "Allow unpickling of weights. This can run any code.", False)
framework = partial(
    option, "Framework of FILE.py:NAME.  [default: detected]", None,
    reads=("choice", *frameworks()),
)  # fmt: skip
input_dtype = partial(
    option,
    "Element type of all inputs; repeated, one for each input.  [default: float32]", "float32",
    multiple=True, metavar="DTYPE", typed=None, reads=(),
    convert=lambda names: names[0] if len(names) == 1 else names or "float32",
)  # fmt: skip
provider_options = partial(
    option, "Option of the provider, e.g. --provider-option device_type=CPU. Repeatable.", None,
    group=ONNX, flag="--provider-option", multiple=True, convert=by_name,
)  # fmt: skip
depth = partial(
    option,
    "Module levels to keep with --by module; deeper levels are summed.  [default: all]", None,
)  # fmt: skip


# Those whose help tells another default in each command.


def batch(default: str, group: str = INPUT) -> Any:
    """One batch size."""
    return option(f"Batch size.  [default: {default}]", None, group=group, common=True)


def energy(default: str, group: str) -> Any:
    """The energy model of the column `energy`."""
    return option(
        "Energy model that fills the column energy, from the operations of each node and the "
        f"types of its operands; see 'tracer docs energy'.  [default: {default}]",
        None, group=group, reads=("energy",),
    )  # fmt: skip


def test(default: str, group: str) -> Any:
    """The data set to measure accuracy on."""
    text = f"Data set for measuring accuracy.  [default: {default}]"
    return option(text, None, group=group, metavar="DATA", reads=(), common=True)


def metric(group: str, reference: str = "with wide accumulators") -> Any:
    """The accuracy metric; some compare with the outputs of a `reference`."""
    text = METRIC.replace("with wide accumulators", reference)
    return option(text, None, group=group, metavar="NAME", common=True)


def input_shape(default: str, group: str) -> Any:
    """Shapes of the inputs, batch first."""
    return option(
        "Shape of an input, batch first. Repeat it for further inputs.  "
        f"[default: {default}]",
        None, group=group, multiple=True, metavar="1,3,32,32", reads=(), common=True,
        convert=lambda texts: [_shape(text) for text in texts] or None,
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


def or_none(value: Any) -> Any:
    """Returns None for an option that was not set."""
    return value or None


@dataclass(frozen=True)
class Inputs:
    """Options that choose the inputs of a run: files, or samples of a data set."""

    inputs: Sequence[Path] = option(
        "Input values: an .npz file or a test_data_set folder; any number of them, and folders of "
        "them.  [default: random]",
        (), group=INPUT, multiple=True, rule=RULES["register"], common=True,
    )  # fmt: skip
    data: str | None = data(None, group=INPUT)
    data_dir: Path = data_dir(group=INPUT)
    limit: int | None = limit(group=INPUT)


def chosen_inputs(
    inputs: Sequence[Path], data: str | None, data_dir: Path, limit: int | None
) -> Samples | Sequence[Path]:
    """Returns the samples of `--data`, or the files of `--inputs`.

    Raises UsageError for options that exclude each other.
    """
    from tracer.inputs.request import Samples

    if data is None and limit is not None:
        raise UsageError("--limit needs --data", "Give --data as well.")
    if data is not None and inputs:
        raise UsageError("--inputs and --data together", "Leave out one of them.")
    return inputs if data is None else Samples(data, limit, data_dir)
