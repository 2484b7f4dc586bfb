"""A check: what a program that gathers test results shows of a comparison, as one test."""

from dataclasses import dataclass
from typing import Literal

Fault = Literal["", "failure", "error"]


@dataclass(frozen=True, slots=True)
class Check:
    """A test of this name in a group, and the figures in words.

    It passed without a `fault`; an `error` is a test that could not decide.
    """

    group: str
    name: str
    text: str
    fault: Fault = ""
