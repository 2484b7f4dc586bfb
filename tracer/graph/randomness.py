"""Operators that draw random numbers: two runtimes never agree on what they return."""

_NAMES = frozenset({"Bernoulli", "Multinomial"})


def draws(op_type: str) -> bool:
    """Whether an operator returns other values in each run."""
    return op_type in _NAMES or op_type.startswith("Random")
