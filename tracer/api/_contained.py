"""Makes the functions of the API run in a child process, all in the same way.

Their modules import nothing heavy: this process loads what the results are made of while the child
works, and never what the work needs.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from tracer.containment import calls
from tracer.support.arguments import RULES, Rule, check_arguments

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def contained(
    rules: Mapping[str, Rule] = RULES,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Makes a function check its arguments by `rules`, and then run in a child process.

    The function has parameters `limits`, whose `seconds` and `process_bytes` limit the child, and
    `in_process`, which keeps the call in this process. Receivers keep what they are given, and
    the client of a cluster has its connections, so they keep the call in this process as well.
    """

    def decorate(
        function: Callable[_Parameters, _Result],
    ) -> Callable[_Parameters, _Result]:
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
