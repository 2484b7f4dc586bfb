"""How many random examples a property test takes, and which of its cases each commit has."""

import random

import pytest
from hypothesis import settings


def examples(most):
    """Settings of a test: `most` examples, or a tenth where they are the same each time."""
    return settings(
        max_examples=max(most // 10, 4) if settings.default.derandomize else most, deadline=None
    )


def at_night(cases, but):
    """The cases of a test, of which those in `but` run for each commit and the others at night."""
    night = pytest.mark.nightly
    return [
        case
        if case in but
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=night)
        for case in cases
    ]


def seeds_of_tonight(first, count):
    """So many seeds from `first` on; others each time where examples are random."""
    if not settings.default.derandomize:
        first = random.randrange(10_000, 1_000_000)
    return range(first, first + count)
