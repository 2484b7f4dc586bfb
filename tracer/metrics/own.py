"""A metric of the user's, named FILE.py:NAME."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracer.errors import InputError, TracerError
from tracer.metrics.metric import Metric, Outputs
from tracer.support.usercode import from_file

_FORM = "A metric is a function(outputs, labels) that returns one number for each sample."


def load(spec: str) -> Metric:
    """The metric that `spec`, FILE.py:NAME, names. Runs the code of the file.

    NAME is a function of the outputs, an array [N, ...] or a dict of them by name where the model
    has several, and the labels. It may say more by attributes of its own: `needs_labels = False`
    (it is given None then), `higher_is_better = False`, `unit = "dB"`. Raises InputError where
    there is no such function or the file's code fails.
    """
    place, _, name = spec.rpartition(":")
    file = Path(place)
    if not file.is_file():
        raise InputError(f"{place}: no such file", _FORM)
    try:
        module = from_file(file)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise _raised(place, file, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{place} has no function '{name}'", _FORM)
    code = getattr(function, "__code__", None)
    line = f", line {code.co_firstlineno}" if code else ""
    return Metric(
        spec,
        _guarded(spec, file, function),
        bool(getattr(function, "needs_labels", True)),
        bool(getattr(function, "higher_is_better", True)),
        str(getattr(function, "unit", "")),
        f" ({file}{line})",
    )


def _guarded(spec: str, file: Path, function: Callable[..., Any]) -> Callable[[Outputs, Any], Any]:
    """The function with what it expects, and its exceptions told with file and line."""
    needs_labels = getattr(function, "needs_labels", True)

    def score(outputs: Outputs, truth: Any) -> Any:
        given = next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs)
        try:
            return function(given, truth if needs_labels else None)
        except TracerError:  # a metric may speak for itself
            raise
        except (Exception, SystemExit) as error:
            raise _raised(f"metric {spec}", file, error) from error

    return score


def _raised(what: str, file: Path, error: BaseException) -> InputError:
    told = error.msg if isinstance(error, SyntaxError) else str(error)
    reason = told.partition("\n")[0].rstrip(".")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    line = own[-1] if own else getattr(error, "lineno", None)
    where = f" ({file}, line {line})" if line else ""
    raised = f"{what} raised {type(error).__name__}: {reason}".rstrip(": ")
    return InputError(f"{raised}{where}", "--debug shows the whole traceback.")
