"""How many random examples a property test takes."""

from hypothesis import settings


def examples(most):
    """Settings of a test: `most` examples, or a third where they are the same each time."""
    return settings(max_examples=most // 3 if settings.default.derandomize else most, deadline=None)
