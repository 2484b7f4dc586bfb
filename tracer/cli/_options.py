"""Options that several commands share."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import click
import cloup

from tracer.analyzers.options import (
    ADDITION_CONVENTIONS,
    DEFAULT_TOP,
    GROUPINGS,
    NODE_GROUPINGS,
    ViewOptions,
    refuse_depth,
    sort_column,
)
from tracer.cli import _fence
from tracer.cli._types import (
    Amount,
    Argument,
    Count,
    EnergyModelName,
    Integers,
    ModelName,
    Pair,
    PathName,
    Percent,
    Size,
    Words,
)
from tracer.containment import activity, search
from tracer.errors import UsageError
from tracer.executors.onnxruntime.settings import OPTIMIZATIONS
from tracer.support.arguments import BOUNDS, RULES

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

FORMATS = ".trace .html .json .csv .parquet .md .png .svg"
"""Extensions of the formats of a node table."""


def bundle(
    parameter: str, build: Callable[..., Any], *options: Decorator, apart: tuple[str, ...] = ()
) -> Decorator:
    """Adds `options`; the command receives `build(**their values)` as the one `parameter`.

    Values of the names in `apart` are passed to the command as they are.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def bundled(**values: Any) -> Any:
            own = {name: values.pop(name) for name in names}
            return command(**{parameter: build(**own)}, **values)

        earlier = len(vars(bundled).get("__click_params__", ()))
        for option in reversed(options):
            option(bundled)
        added = vars(bundled)["__click_params__"][earlier:]
        passed = [param.name for param in added if param.expose_value]
        names = [name for name in passed if name not in apart]
        return bundled

    return decorate


_READERS: Mapping[str, Callable[..., Any]] = {
    "amount": Amount, "argument": Argument, "choice": lambda *names: click.Choice(names),
    "count": Count, "counts": Integers, "energy": EnergyModelName, "pair": Pair, "path": PathName,
    "percent": Percent, "size": Size, "words": lambda *allowed: Words(allowed),
}  # fmt: skip
"""Types of values, by the names that `tracer.support.arguments` has for them."""


def declared(
    record: type[Any], parameter: str = "options", build: Callable[..., Any] = dict
) -> Decorator:
    """Adds the options that the fields of a record declare (`tracer.support.arguments.option`).

    The command receives `build(**values)` as `parameter`: by default the keyword arguments of the
    function that takes the record. Sections stand as the record's GROUPS do, or as first named.
    """
    members: dict[str | None, list[Field[Any]]] = {
        name: [] for name in getattr(record, "GROUPS", ())
    }
    for each in _options_of(record):
        members.setdefault(each.metadata["group"], []).append(each)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(**values: Any) -> Any:
            return command(**{parameter: build(**_taken(record, values))}, **values)

        for title, group in reversed(members.items()):
            options = [_option(each) for each in group]
            if title is None:
                for option in reversed(options):
                    option(call)
            else:
                cloup.option_group(title, *options)(call)
        return call

    return decorate


def _options_of(record: type[Any]) -> Iterator[Field[Any]]:
    """Yields the fields that options of a command line set, those of parts where these stand."""
    for each in fields(record):
        if "part" in each.metadata:
            yield from _options_of(each.metadata["part"])
        elif "help" in each.metadata:
            yield each


def _taken(record: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Takes the values of the fields of `record` out of `values`."""
    own = {}
    for each in fields(record):
        line = each.metadata
        if "part" in line:
            own[each.name] = line["build"](**_taken(line["part"], values))
        elif each.name in values and "help" in line:
            value = values.pop(each.name)
            own[each.name] = line["convert"](value) if "convert" in line else value
    return own


def _option(declared: Field[Any]) -> Decorator:
    """Returns the option of the command line that a field declares."""
    line = dict(declared.metadata)
    rule = line.pop("rule") or RULES.get(declared.name)
    reads = line.pop("reads", rule.reads if rule else ())
    flag = line.pop("flag", "--" + declared.name.replace("_", "-"))
    default = line.pop("typed", declared.default)
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
    settings |= {name: line[name] for name in line.keys() - {"group", "convert"}}
    return cloup.option(*flag.split(), declared.name, **settings)


def batch(help: str) -> Decorator:
    """`--batch N`, one batch size."""
    return cloup.option("--batch", type=Count.of("batch"), help=help)


def output(formats: str, more: str = "") -> Decorator:
    """`-o FILE`, repeatable; `formats` are the extensions, `more` is a last sentence."""
    return cloup.option(
        "-o", "--output", "outputs", multiple=True, metavar="FILE",
        help=f"Write a file; the extension sets the format: {formats}. FORMAT:FILE sets it for "
        f"any other name; - is stdout. {more}Repeatable.",
    )  # fmt: skip


def top(description: str, default: int | None = None) -> Decorator:
    """`--top N`; `description` tells the number of rows without it."""
    return cloup.option(
        "--top", type=Count(), default=default,
        help=f"Rows to show; 0 shows all.  [default: {description}]",
    )  # fmt: skip


def tolerance(rtol: str, atol: str) -> Decorator:
    """`--rtol` and `--atol` as a section of the help, which tells these defaults."""
    return cloup.option_group(
        "Tolerance",
        cloup.option("--rtol", type=Amount("number"),
                     help=f"Error that is allowed, as a share of the values.  [default: {rtol}]"),
        cloup.option("--atol", type=Amount("number"),
                     help=f"Error that is allowed besides.  [default: {atol}]"),
        help="The largest error may be atol + rtol * the largest value of the tensor, and the RMS "
        "error atol + rtol * the RMS.",
    )  # fmt: skip


def shape(text: str) -> tuple[int, ...]:
    """Returns the sizes of `1,3,32,32`. Raises UsageError where the text is no shape."""
    try:
        sizes = text.replace("x", ",").removesuffix(",")
        return tuple(int(size) for size in sizes.split(",")) if sizes else ()
    except ValueError as error:
        raise UsageError(
            f"--input-shape {text} is not a shape", "Give sizes with the batch first: 1,3,32,32."
        ) from error


def to_output(
    as_json: bool,
    as_csv: bool = False,
    outputs: tuple[str, ...] = (),
    force: bool = False,
    top: int | None = None,
    notes: bool = False,
    by: str = "node",
    depth: int | None = None,
    threshold: float | None = None,
    sort: str | None = None,
    full_numbers: bool = False,
    opened: bool = False,
    redact: bool = False,
    expand: bool = False,
    with_paths: bool = False,
) -> Any:
    """Returns the Output that these options set. Raises UsageError where `by` has no such rows."""
    from tracer.cli._output import Output

    refuse_depth(by, depth)
    if expand and by != "node":
        raise UsageError("--expand shows nodes", "Give it with --by node.")
    if sort is not None:
        sort_column(sort, by)
    stdout = (["json:-"] if as_json else []) + (["csv:-"] if as_csv else [])
    if redact and with_paths:
        raise UsageError("--redact and --with-paths together", "Leave out one of them.")
    options = ViewOptions(
        by, top, threshold, depth, notes, sort, full_numbers, redact, expand, with_paths=with_paths
    )
    _fence.build(click.get_current_context().params)
    # The files of a search are those of the run that crashed, and may have its first results.
    files = () if search.is_on() else (*outputs, *stdout)
    return Output(options, files, force, opened)


def _about(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Names the first file in errors that could not say where they are."""
    first = value if isinstance(value, str | Path) else next(iter(value), "")
    if not ctx.resilient_parsing:
        activity.about(Path(first).name)
    return value


def subject(*name: str, **settings: Any) -> Decorator:
    """An argument, or several, with what the command is about."""
    return cloup.argument(*name, callback=_about, **settings)


MODEL = subject("model", type=ModelName())

DIMS = cloup.option(
    "--dim", "dims", type=Size(), multiple=True,
    help="Size of an open dimension, by its symbol or as INPUT:AXIS, e.g. --dim sequence=128 or "
    "--dim x:2=48. Repeatable.  [default: the usual size of such an input]",
)  # fmt: skip
PROVIDER_OPTIONS = cloup.option(
    "--provider-option", "provider_options", type=Pair(), multiple=True,
    help="Option of the provider, e.g. --provider-option device_type=CPU. Repeatable.",
)  # fmt: skip
REGISTER = cloup.option(
    "--register", type=PathName(), multiple=True, metavar="FILE.so",
    help="Library of custom operators for onnxruntime; its code is executed. Repeatable.",
)  # fmt: skip
PHASES = cloup.option_group(
    "Phases of a language model",
    cloup.option(
        "--prefill", type=Count.of("prefill"),
        help="Look at a prefill of N tokens, the model's cache being empty.",
    ),
    cloup.option(
        "--decode", type=Count.of("decode"),
        help="Look at N steps of one token after the prefill as well.",
    ),
    cloup.option(
        "--past", type=Integers(*BOUNDS["past"]),
        help="Tokens in the cache at decode steps, e.g. 0,512,2048.  [default: those at the "
        "middle step]",
    ),
)  # fmt: skip

INPUTS = cloup.option(
    "--inputs", type=PathName(),
    help="Input values: an .npz file or a test_data_set folder.  [default: random]",
)  # fmt: skip
SEED = cloup.option(
    "--seed", type=Count.of("seed"), default=0, show_default=True, help="Seed of random inputs."
)
THREADS = cloup.option(
    "--threads",
    type=Count.of("threads"),
    default=0,
    help="Threads per operator.  [default: all cores]",
)
OPTIMIZATION = cloup.option(
    "--optimization", type=click.Choice(OPTIMIZATIONS), default="all", show_default=True,
    help="Graph optimisation level of onnxruntime.",
)  # fmt: skip
CONVENTION = cloup.option(
    "--convention", type=click.Choice(ADDITION_CONVENTIONS), default="plain", show_default=True,
    help="How the additions of a convolution are counted; see docs/counting.md.",
)  # fmt: skip

DEPTH = cloup.option(
    "--depth", type=Count.of("depth"),
    help="Module levels to keep with --by module; deeper levels are summed.  [default: all]",
)  # fmt: skip
SORT = cloup.option(
    "--sort", metavar="COLUMN",
    help="Sort the rows by this column, as its header or its name in files: total, macs, index.  "
    "[default: time]",
)  # fmt: skip
TOP = top(f"{DEFAULT_TOP} on a terminal, all in files")
NOTES = cloup.option("--notes", is_flag=True, help="Show all notes, not only the most important.")
TOLERANCE = tolerance(
    "by type and depth; for float32 1.2e-4 * the square root of the operators in a row",
    "one rounding of the type",
)
JSON = cloup.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
CSV = cloup.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of the table.")
OPEN = cloup.option("--open", "opened", is_flag=True, help="Open the .html file in a browser.")
REDACT = cloup.option(
    "--redact", is_flag=True,
    help="Leave paths, the system, and the text of source lines out of everything.",
)  # fmt: skip
WITH_PATHS = cloup.option(
    "--with-paths", is_flag=True,
    help="Keep absolute paths in .trace and .json files.  [default: names alone]",
)  # fmt: skip
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
        cloup.option("--by", type=click.Choice(groupings), default="node", show_default=True,
                     help=f"What a row is: {rows}."),
        cloup.option("--expand", is_flag=True,
                     help="Show fused nodes, constants and conversions in rows of their own."),
        DEPTH, SORT, TOP,
        cloup.option("--threshold", type=Amount("µs"), metavar="µs",
                     help="Highlight the chart's bars from this time on."),
        NOTES,
        cloup.option("--full-numbers", is_flag=True,
                     help="Show every digit of large numbers, as files do: 204,032,186, not "
                          "204 M."),
    )  # fmt: skip


TRACE_VIEW = _trace_view(
    NODE_GROUPINGS, "a node, the nodes of an operator, module or source line, or a kernel"
)
SUMS_VIEW = _trace_view(
    GROUPINGS,
    "a node, the nodes of an operator, module or source line, a kernel, or (with narrow "
    "accumulators) a sample",
)
