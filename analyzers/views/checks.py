"""A check: what a program that gathers test results shows of a comparison, as one test."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """A test of this name in a group; it passed without a `failure` and without an `error`.

    `failure` tells what is wrong, `error` why nothing could be decided. `text` are the figures.
    """

    group: str
    name: str
    text: str
    failure: str = ""
    error: str = ""
