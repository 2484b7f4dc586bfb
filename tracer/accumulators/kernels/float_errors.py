"""Relative errors of float sums, and the bins that they are counted in."""

from typing import Any

import numpy as np
from numba import njit, types

from tracer.accumulators.kernels.array_types import FLAT_OUT, each, flat, kernel, read_only
from tracer.accumulators.statistics.error_bins import BELOW, COUNT, UNUSED_BITS
from tracer.interpreter.compiled_code import entry

_PART = 256
"""Errors that are computed at once, in vectors; they are counted one by one."""
_VALUES, _ERRORS = read_only(types.float32), flat(types.float64)


@njit(types.void(_VALUES, read_only(types.float64), _ERRORS), nogil=True, cache=True,
      error_model="numpy")  # fmt: skip
def _errors(values: Any, exact: Any, out: Any) -> None:
    """Writes relative errors as `FloatTally` defines them; -1 where one is NaN."""
    for i in range(out.size):
        value, wanted = float(values[i]), exact[i]
        error = abs(value - wanted) / abs(wanted)
        error = error if error == error else np.inf  # infinity instead of another infinity
        error = 0.0 if value == wanted else error
        out[i] = error if (value == value) & (wanted == wanted) else -1.0


@entry(lambda values, exact, histogram: values.size == exact.size and histogram.size == COUNT)
@kernel(each(types.int64, types.float64)(_VALUES, read_only(types.float64), FLAT_OUT))
def count(values: Any, exact: Any, histogram: Any) -> Any:
    """Adds the errors of sums to a histogram of `error_bins`.

    Returns how many sums have no error, for they or their exact values are NaN, and the greatest
    error.
    """
    spare, none, greatest = np.empty(_PART), 0, 0.0
    for low in range(0, values.size, _PART):
        high = min(low + _PART, values.size)
        errors = spare[: high - low]
        _errors(values[low:high], exact[low:high], errors)
        bits = errors.view(np.int64)
        for i in range(errors.size):
            if errors[i] < 0:
                none += 1
            else:
                greatest = max(greatest, errors[i])
                histogram[min(max((bits[i] >> UNUSED_BITS) - BELOW, 0), COUNT - 1)] += 1
    return none, greatest
