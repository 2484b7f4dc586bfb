"""Loads a metric that a user wrote, named FILE.py:NAME."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.errors import InputError, TracerError
from tracer.metrics.metric import Metric, Outputs
from tracer.support import imports

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
    function = imports.from_user_file(file, name, _FORM)
    if not callable(function):
        raise InputError(f"{path} has no function '{name}'", _FORM)
    code = getattr(function, "__code__", None)
    line = f", line {code.co_firstlineno}" if code else ""
    return Metric(
        spec,
        _Guarded(spec, file, function),
        bool(getattr(function, "needs_labels", True)),
        bool(getattr(function, "higher_is_better", True)),
        str(getattr(function, "unit", "")),
        f" ({file}{line})",
    )


@dataclass(frozen=True, slots=True)
class _Guarded:
    """Calls the function with the arguments it expects; its exceptions name file and line.

    Pickled, it is the name of the function: another process reads the file again.
    """

    spec: str
    file: Path
    function: Callable[..., Any]

    def __call__(self, outputs: Outputs, truth: Any) -> Any:
        argument = next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs)
        needs_labels = getattr(self.function, "needs_labels", True)
        try:
            return self.function(argument, truth if needs_labels else None)
        except TracerError:  # already names the problem
            raise
        except (Exception, SystemExit) as error:
            raise imports.user_code_error(f"metric {self.spec}", self.file, error) from error

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        name = self.spec.rpartition(":")[2]
        return _reloaded, (f"{self.file.resolve()}:{name}",)


def _reloaded(spec: str) -> Any:
    return load(spec).function
