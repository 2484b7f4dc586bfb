"""Loads a metric that a user wrote, named FILE.py:NAME."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracer.errors import InputError, TracerError
from tracer.metrics.metric import Metric, Outputs
from tracer.support.usercode import from_file, raised

_FORM = "A metric is a function(outputs, labels) that returns one number for each sample."


def load(spec: str) -> Metric:
    """Returns the metric `spec`, FILE.py:NAME. Runs the code of the file.

    NAME is a function (outputs, labels). Outputs are an array [N, ...], or a dict of arrays by
    name where the model has several. The function may have attributes: `needs_labels = False`
    (labels are None then), `higher_is_better = False`, `unit = "dB"`. Raises InputError where
    there is no such function, or the code of the file fails.
    """
    path, _, name = spec.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: no such file", _FORM)
    try:
        module = from_file(file)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise raised(path, file, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{path} has no function '{name}'", _FORM)
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
    """Calls the function with the arguments it expects; its exceptions name file and line."""
    needs_labels = getattr(function, "needs_labels", True)

    def score(outputs: Outputs, truth: Any) -> Any:
        argument = next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs)
        try:
            return function(argument, truth if needs_labels else None)
        except TracerError:  # already names the problem
            raise
        except (Exception, SystemExit) as error:
            raise raised(f"metric {spec}", file, error) from error

    return score
