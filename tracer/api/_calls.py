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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tracer.analyzers.options import ADDITION_CONVENTIONS
from tracer.containment import calls
from tracer.support.arguments import (
    RULES,
    Rule,
    check_arguments,
    check_fields,
    option,
    swept,
)

if TYPE_CHECKING:
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


def by_rules(
    rules: Mapping[str, Rule] = RULES,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Makes a function check its arguments by `rules`, and then run in a child process."""

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
            bound = signature.bind(*args, **named)
            bound.apply_defaults()
            arguments = bound.arguments
            check_arguments(arguments, rules)
            is_client = not isinstance(arguments.get("cluster"), str | None)
            if arguments["in_process"] or arguments.get("receivers") or is_client:
                return function(*args, **named)
            most = arguments["limits"]
            seconds, nbytes = (most.seconds, most.process_bytes) if most else (None, None)
            there = {**arguments, "in_process": True}
            return calls.contained(call, there, seconds, nbytes, _load_results)

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


def batch(default: str) -> Any:
    """One batch size; `default` says which without it."""
    return option(f"Batch size.  [default: {default}]", None, group=INPUT)


def dims() -> Any:
    """Sizes of open dimensions, by symbol or `INPUT:AXIS`."""
    return option(
        "Size of an open dimension, by its symbol or as INPUT:AXIS, e.g. --dim sequence=128 or "
        "--dim x:2=48. Repeatable.  [default: the usual size of such an input]",
        None, group=INPUT, flag="--dim", multiple=True, convert=dict,
    )  # fmt: skip


def convention() -> Any:
    """How additions are counted (see `tracer.analyzers.cost`)."""
    return option(
        "How the additions of a convolution are counted; see docs/counting.md.", "plain",
        group="Work", reads=("choice", *ADDITION_CONVENTIONS),
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
