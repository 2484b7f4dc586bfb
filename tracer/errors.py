"""What can go wrong, each with the exit code the command line ends with."""

from __future__ import annotations


class TracerError(Exception):
    """Base of every error a user may meet.

    `what` names the problem and where it is (file, node, operator, opset); `hint` says what is
    allowed and what to do. Both are one sentence and are shown without a traceback.
    """

    exit_code = 1

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}. {self.hint}" if self.hint else self.what


class ThresholdError(TracerError):
    """A comparison or a threshold failed; the command did its work."""

    exit_code = 1


class UsageError(TracerError):
    """The arguments contradict each other or the model they are for."""

    exit_code = 2


class ModelError(TracerError):
    """The model is broken, or uses what is not supported."""

    exit_code = 3


class InputError(TracerError):
    """An input, a data set or an output path is missing or does not fit."""

    exit_code = 3


class LimitError(TracerError):
    """A limit of `tracer.limits` was hit."""

    exit_code = 4
