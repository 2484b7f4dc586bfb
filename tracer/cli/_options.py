"""Options of commands: those that records declare, and those that several commands share.

An option of the command line is declared here, or by a field of a record of arguments (see
`tracer.support.arguments.option`), and nowhere else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup
from click.core import ParameterSource

from tracer.analyzers import options as view_options
from tracer.api import _calls
from tracer.cli import _types
from tracer.cli._command import Option
from tracer.cli._messages import is_verbose
from tracer.containment import activity, memory, signals, watch
from tracer.errors import UsageError
from tracer.executors.settings import OPTIMIZATIONS
from tracer.support.arguments import PATH, RULES, check_declared, flag_of, maybe, option

if TYPE_CHECKING:  # commands annotate with these what they are handed
    from tracer.cli._output import Output as Output
    from tracer.exporters.subject import ModelSource as ModelSource
    from tracer.limits import Limits as Limits
    from tracer.support.tolerance import Tolerance as Tolerance

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

FORMATS = ".trace .html .json .csv .parquet .md .png .svg"
"""Extensions of the formats of a node table."""
_MEBI = 1 << 20
_LEAST_MEMORY = 512
"""MiB. The libraries alone take 300; with less, some of them hang or end the process."""

_READERS: Mapping[str, Callable[..., Any]] = {
    "amount": _types.Amount, "argument": _types.Argument,
    "choice": lambda *choices: _types.Choice(choices), "count": _types.Count,
    "counts": _types.Integers, "energy": _types.EnergyModelName, "integer": lambda: int,
    "optimization": lambda: _types.Choice(OPTIMIZATIONS),
    "optimizations": lambda: _types.Words(OPTIMIZATIONS), "pair": _types.Pair,
    "path": _types.PathName, "percent": _types.Percent, "size": _types.Size,
    "words": lambda *allowed: _types.Words(allowed),
}  # fmt: skip
"""Types of values, by the names that `tracer.support.arguments` has for them."""


_HELP = {
    _calls.TOLERANCE: "The largest error may be atol + rtol * the largest value of the tensor, and "
    "the RMS error atol + rtol * the RMS."
}
"""Of sections of the help."""


def declared(
    record: type[Any], parameter: str = "options", build: Callable[..., Any] = dict
) -> Decorator:
    """Adds the options that the fields of a record declare (`tracer.support.arguments.option`).

    The command receives `build(**values)` as `parameter`: by default the keyword arguments of the
    function that takes the record. Sections stand as the record's GROUPS do, or as first named.
    """
    check_declared(record)
    members: dict[str | None, list[Field[Any]]] = {
        name: [] for name in getattr(record, "GROUPS", ())
    }
    for each in _options_of(record):
        members.setdefault(each.metadata["group"], []).append(each)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(**values: Any) -> Any:
            return command(**{parameter: build(**_take(record, values))}, **values)

        for title, group in reversed(members.items()):
            options = [_option(each) for each in group]
            if title is None:
                for decorated in reversed(options):
                    decorated(call)
            else:
                cloup.option_group(title, *options, help=_HELP.get(title))(call)
        return call

    return decorate


def single(name: str, declaration: Any) -> Decorator:
    """Adds the option of a command alone that `arguments.option` declares, as parameter `name`."""
    record = make_dataclass("Single", [(name, Any, declaration)])
    return declared(record, name, lambda **own: own[name])


def names(record: type[Any]) -> list[str]:
    """Returns the names of the parameters that the options of a record have."""
    return [each.name for each in _options_of(record)]


def _options_of(record: type[Any]) -> Iterator[Field[Any]]:
    """Yields the fields that options of a command line set, those of parts where these stand."""
    for each in fields(record):
        if "part" in each.metadata:
            yield from _options_of(each.metadata["part"])
        elif "help" in each.metadata:
            yield each


def _take(record: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Takes the values of the fields of `record` out of `values`."""
    own = {}
    for each in fields(record):
        line = each.metadata
        if "part" in line:
            own[each.name] = line["build"](**_take(line["part"], values))
        elif each.name in values and "help" in line:
            value = values.pop(each.name)
            own[each.name] = line["convert"](value) if "convert" in line else value
    return own


def _option(declared: Field[Any]) -> Decorator:
    """Returns the option of the command line that a field declares."""
    line = dict(declared.metadata)
    rule = line.pop("rule") or RULES.get(declared.name)
    reads = line.pop("reads", rule.reads if rule else ())
    default = line.pop("typed", declared.default)
    if declared.default_factory is not MISSING:
        default = None
    told = "[default:" in line["help"] or default in (None, MISSING, (), False)
    settings: dict[str, Any] = {"show_default": line.pop("shown", not told)}
    if default is MISSING:
        settings["required"] = True
    elif not (line.get("multiple") and default is None):
        settings["default"] = default
    if isinstance(default, bool):
        settings["is_flag"] = True
    elif reads:
        settings["type"] = _READERS[reads[0]](*reads[1:])
    if line.pop("limits_command", False):
        settings["callback"] = limit_seconds
    settings |= {name: line[name] for name in line.keys() - {"flag", "group", "convert", "python"}}
    return cloup.option(*flag_of(declared).split(), declared.name, cls=Option, **settings)


def bundle(parameter: str, build: Callable[..., Any], *options: Decorator) -> Decorator:
    """Adds `options`; the command receives `build(**their values)` as the one `parameter`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def bundled(**values: Any) -> Any:
            own = {name: values.pop(name) for name in own_names}
            return command(**{parameter: build(**own)}, **values)

        earlier = len(vars(bundled).get("__click_params__", ()))
        for each in reversed(options):
            each(bundled)
        added = vars(bundled)["__click_params__"][earlier:]
        own_names = [param.name for param in added if param.expose_value]
        return bundled

    return decorate


def limit_seconds(
    ctx: click.Context, param: click.Parameter, seconds: float | None
) -> float | None:
    """Begins the time of a command whose limit was typed; a default has its own way to end."""
    is_set = ctx.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT
    if seconds is not None and is_set and not ctx.resilient_parsing:
        signals.limit_seconds(seconds)
    return seconds


def _limit_memory(ctx: click.Context, param: click.Parameter, mebi: int | None) -> int | None:
    """Limits the process, unless it is not a child: then it is not only this command's."""
    if mebi is not None and not ctx.resilient_parsing and activity.page() is not None:
        memory.limit(mebi * _MEBI)
    return mebi


def _limits(
    max_seconds: float | None, max_tensor: int | None, max_live: int | None, max_trips: int
) -> Any:
    from tracer.limits import Limits

    mebis = {"tensor_bytes": max_tensor, "live_bytes": max_live}
    chosen = {name: mebi * _MEBI for name, mebi in mebis.items() if mebi is not None}
    return Limits(**chosen, loop_trips=max_trips, seconds=max_seconds)


MEMORY = cloup.option(
    "--max-memory", type=_types.Count(_LEAST_MEMORY), metavar="MIB", expose_value=False,
    callback=_limit_memory,
    help="Memory that the command may allocate, in MiB, at least 512.  "
    "[default: 75% of what is free; for onnxruntime 640, and 512 times weights and inputs]",
)  # fmt: skip
PROCESS_LIMITS = cloup.option_group(
    "Limits",
    cloup.option("--max-seconds", type=_types.Amount("seconds"), expose_value=False,
                 callback=limit_seconds, help="Longest time for the command.  "
                 "[default: 10 minutes for a step]"),
    MEMORY,
)  # fmt: skip
"""Limits of a command as a whole. The values are not passed to the command."""

RUN_LIMITS = bundle(
    "limits", _limits,
    cloup.option_group(
        "Limits",
        cloup.option("--max-seconds", type=_types.Amount("seconds"), callback=limit_seconds,
                     help="Longest time for the command.  [default: 10 minutes for a loop]"),
        cloup.option("--max-tensor", type=_types.Count(1), metavar="MIB",
                     help="Largest tensor, in MiB.  [default: --max-live, at most 4096]"),
        cloup.option("--max-live", type=_types.Count(1), metavar="MIB",
                     help="Memory of all live tensors, in MiB.  [default: 512, and 512 times "
                          "weights and inputs, at most half of the free memory]"),
        cloup.option("--max-trips", type=_types.Count(1), default=1_000_000, show_default=True,
                     help="Most iterations of a loop."),
        MEMORY,
    ),
)  # fmt: skip


def _cluster(workers: int | None, scheduler: str | None) -> str | None:
    """Returns the pool as `tracer.scaling` reads it. Raises UsageError for two of them."""
    if workers is not None and scheduler is not None:
        raise UsageError(
            "--workers starts processes on this machine, and --scheduler names a cluster",
            "Give one of them.",
        )
    return scheduler if workers is None else f"local:{workers}"


WORKERS = bundle(
    "cluster", _cluster,
    cloup.option_group(
        "Workers",
        cloup.option("--workers", cls=Option, common=True, type=_types.Count(1), metavar="N",
                     help="Share the data out to N processes on this machine. --threads are then "
                          "those of each.  [default: none]"),
        cloup.option("--scheduler", metavar="ADDRESS",
                     help="Share the data out to the workers of a Dask cluster, by the address of "
                          "its scheduler, e.g. tcp://host:8786.  [default: none]"),
    ),
)  # fmt: skip


def _about(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Names the first file in errors that could not say where they are.

    Raises InputError for a file that another command reads.
    """
    subjects = [value] if isinstance(value, str | Path) else list(value)
    if not ctx.resilient_parsing:
        activity.about(Path(next(iter(subjects), "")).name)
        for each in subjects:
            _types.refuse_other(str(each), (ctx.info_name or "").rpartition(" ")[2])
    return value


def refuse_typed(parameters: Container[str], why: str, hint: str) -> None:
    """Raises UsageError for a typed option of these parameters, which the command would not read.

    `why` follows its name; {flag} in `hint` stands for it.
    """
    context = click.get_current_context()
    for each in context.command.params:
        source = context.get_parameter_source(each.name or "")
        if each.name in parameters and source is ParameterSource.COMMANDLINE:
            raise UsageError(f"{each.opts[0]} {why}", hint.format(flag=each.opts[0]))


def refuse_unread() -> None:
    """Raises UsageError for typed options about inputs that others leave unread."""
    chosen = click.get_current_context().params
    if chosen.get("data") is None:
        refuse_typed({"data_dir"}, "is for a data set", "Name it: --data NAME.")
    if chosen.get("data") or chosen["inputs"]:
        refuse_typed({"seed"}, "is for random inputs, and these are named", "Leave it out.")


def subject(*name: str, **settings: Any) -> Decorator:
    """An argument, or several, with what the command is about."""
    return cloup.argument(*name, callback=_about, **settings)


MODEL = subject("model", type=_types.ModelName())

CODE = "Model of a framework (FILE.py:NAME), exported when it is read"


@dataclass(frozen=True)
class Code:
    """What a model needs that is named by its code, or has operators of the user's own."""

    args: Mapping[str, Any] = _calls.args(group=CODE)
    weights: Path | None = _calls.weights(group=CODE)
    input_shape: Sequence[Sequence[int]] | None = _calls.input_shape(
        "the model's input_shape", CODE
    )
    input_dtype: str | Sequence[str] = _calls.input_dtype(group=CODE)
    trust: bool = _calls.trust(group=CODE)
    operators: Path | None = option(
        "Python file with functions that compute and count operators of other domains; its code "
        "is executed.",
        None, group="Operators of your own", rule=maybe(PATH), metavar="FILE.py",
    )  # fmt: skip

    def subject(self, model: Path) -> ModelSource:
        """Returns what `model` names with these options."""
        if self == Code(args={}):
            return model

        from tracer.exporters import subject

        return subject.Code(
            str(model), self.input_shape, self.input_dtype, self.args, self.weights, self.trust,
            self.operators,
        )  # fmt: skip


def model_argument(code: type[Code] = Code) -> Decorator:
    """Returns MODEL, of whatever kind, for commands that take its ONNX graph."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(model: Path, code: Code, **values: Any) -> Any:
            return command(model=code.subject(model), **values)

        return MODEL(declared(code, "code", code)(call))

    return decorate


SUBJECT = model_argument()
ARGUMENTS = _option(next(each for each in fields(Code) if each.name == "args"))
"""`--arg`, for a command of its own (models.train)."""


def output(formats: str, more: str = "") -> Decorator:
    """`-o FILE`, repeatable; `formats` are the extensions, `more` is a last sentence."""
    return cloup.option(
        "-o", "--output", "outputs", cls=Option, common=True, multiple=True, metavar="FILE",
        help=f"Write a file; the extension sets the format: {formats}. FORMAT:FILE sets it for "
        f"any other name; - is stdout. {more}Repeatable.",
    )  # fmt: skip


def top(description: str, default: int | None = None) -> Decorator:
    """`--top N`; `description` tells the number of rows without it."""
    return cloup.option(
        "--top", cls=Option, common=True, type=_types.Count(), default=default,
        help=f"Rows to show; 0 shows all.  [default: {description}]",
    )  # fmt: skip


def tolerance(rtol: str, atol: str, relative: float | None = None) -> Decorator:
    """`--rtol` and `--atol`, as the one parameter `tolerance`; the help tells these defaults."""

    def built(rtol: float | None, atol: float | None) -> Any:
        from tracer.support.tolerance import Tolerance

        return Tolerance(relative if rtol is None else rtol, atol)

    record = make_dataclass(
        "Tolerance", [("rtol", Any, _calls.rtol(rtol)), ("atol", Any, _calls.atol(atol))]
    )
    return declared(record, "tolerance", built)


def to_output(
    as_json: bool,
    as_csv: bool = False,
    outputs: tuple[str, ...] = (),
    force: bool = False,
    opened: bool = False,
    **shown: Any,
) -> Any:
    """Returns the Output that these options set; `shown` are fields of ViewOptions.

    Raises UsageError where `by` has no such rows.
    """
    from tracer.cli._output import Output, build_fence

    if is_verbose():
        shown["notes"] = True
    options = view_options.ViewOptions(**shown)
    view_options.refuse_depth(options.by, options.depth)
    if options.expand and options.by != "node":
        raise UsageError("--expand shows nodes", "Give it with --by node.")
    if options.sort is not None:
        view_options.sort_column(options.sort, options.by)
    stdout = (["json:-"] if as_json else []) + (["csv:-"] if as_csv else [])
    if options.redact and options.with_paths:
        raise UsageError("--redact and --with-paths together", "Leave out one of them.")
    build_fence(click.get_current_context().params)
    # The files of a search are those of the run that crashed, and may have its first results.
    files = () if watch.is_search() else (*outputs, *stdout)
    return Output(options, files, force, opened)


DEPTH = _option(fields(make_dataclass("Depth", [("depth", Any, _calls.depth())]))[0])
SORT = cloup.option(
    "--sort", metavar="COLUMN",
    help="Sort the rows by this column, as its header or its name in files: total, macs, index.  "
    "[default: time]",
)  # fmt: skip
TOP = top(f"{view_options.DEFAULT_TOP} on a terminal, all in files")
NOTES = cloup.option("--notes", is_flag=True, help="Show all notes, not only the most important.")
TOLERANCE = tolerance(
    "by type and depth; for float32 1.2e-4 * the square root of the operators in a row",
    "one rounding of the type",
)
JSON = cloup.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
CSV = cloup.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of the table.")
OPEN = cloup.option(
    "--open", "opened", cls=Option, common=True, is_flag=True,
    help="Open the .html file in a browser.",
)  # fmt: skip
REDACT = cloup.option(
    "--redact", is_flag=True,
    help="Leave paths, the system, and the text of source lines out of everything.",
)  # fmt: skip
WITH_PATHS = cloup.option(
    "--with-paths", is_flag=True,
    help="Keep absolute paths in .trace and .json files.  [default: names alone]",
)  # fmt: skip
DEBUG = cloup.option(
    "--debug", is_flag=True, help="Show Python tracebacks instead of one-line errors."
)
FORCE = cloup.option("--force", is_flag=True, help="Overwrite files that exist.")


def view(formats: str, *shown: Decorator, more: str = "") -> Decorator:
    """Options for what is shown and where it is written, handed to the command as `output`.

    `formats` are extensions for the help, `shown` the options of the first section, `more` a last
    sentence about files.
    """
    of_reports = (OPEN,) if ".html" in formats else ()
    paths = (REDACT, WITH_PATHS)
    files = output(formats, more)
    sections = [cloup.option_group("Output", JSON, CSV, files, *of_reports, *paths, FORCE)]
    if shown:
        sections.insert(0, cloup.option_group("What is shown", *shown))
    return bundle("output", to_output, *sections)


def _trace_view(groupings: Sequence[str], rows: str) -> Decorator:
    """Options for a trace whose rows may be any of `groupings`, as `rows` tells."""
    return view(
        f"{FORMATS} .roofline.png .roofline.svg .sums.png .sums.svg",
        cloup.option("--by", cls=Option, common=True, type=_types.Choice(groupings), default="node",
                     show_default=True,
                     help=f"What a row is: {rows}."),
        cloup.option("--expand", is_flag=True,
                     help="Show fused nodes, constants and conversions in rows of their own."),
        DEPTH, SORT, TOP,
        cloup.option("--threshold", type=_types.Amount("µs"), metavar="µs",
                     help="Highlight the chart's bars from this time on."),
        NOTES,
        cloup.option("--full-numbers", is_flag=True,
                     help="Show every digit of large numbers, as files do: 204,032,186, not "
                          "204 M."),
    )  # fmt: skip


TRACE_VIEW = _trace_view(
    view_options.NODE_GROUPINGS,
    "a node, the nodes of an operator, module or source line, or a kernel",
)
SUMS_VIEW = _trace_view(
    view_options.GROUPINGS,
    "a node, the nodes of an operator, module or source line, a kernel, or (with narrow "
    "accumulators) a sample",
)
