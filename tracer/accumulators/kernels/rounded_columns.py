"""Columns of weights, rounded one after the other to what registers have left."""

from typing import Any

import numpy as np

from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import helper, read_only, repeat_type

_OUT = types.Array(types.float64, 2, "C")


@helper(inline="always")
def _times(room: Any, value: int) -> Any:
    """How often `value` >= 0 fits into `room`."""
    return max(np.floor(room / value), 0.0) if value > 0 else np.inf


@entry(lambda left, factor, registers, room, shrink, ends, integers, errors: (
        left.shape == integers.shape == errors.shape
        and factor.shape == (len(left), len(left))
        and len(room) == len(shrink) == 2
        and room.shape == shrink.shape
        and room.shape[2] == left.shape[1]
        and registers.shape == (len(left),)
        and all(0 <= each < room.shape[1] for each in registers)
    ),
    types.void(
        _OUT, read_only(types.float64, 2), read_only(types.int64),
        types.Array(types.float64, 3, "C"), read_only(types.float64, 3),
        repeat_type(types.int64, 3), _OUT, _OUT,
    ))  # fmt: skip
def round_block(
    left: Any, factor: Any, registers: Any, room: Any, shrink: Any, ends: Any, integers: Any,
    errors: Any,
) -> None:  # fmt: skip
    """Rounds columns `left` (columns, rows) to `integers`, each after what those before it lost.

    `factor` (columns, columns) are the correlations. `room` and `shrink` (2, registers, rows) are
    what the sums of each register may still add above and below, which becomes less, and by how
    much positive and negative weights shrink. `ends` are the least and the greatest input, and the
    largest weight. Writes the `errors` in units of the columns behind.
    """
    low, high, limit = ends
    for column in range(left.shape[0]):
        register, diagonal = registers[column], factor[column, column]
        for row in range(left.shape[1]):
            weight = left[column, row]
            above, below = room[0, register, row], room[1, register, row]
            shrunk = max(weight - shrink[0, register, row], 0.0)
            shrunk -= max(-weight - shrink[1, register, row], 0.0)
            most = min(min(_times(above, high), _times(below, -low)), limit)
            least = min(min(_times(above, -low), _times(below, high)), limit)
            integer = min(max(np.rint(shrunk), -least), most)
            integers[column, row] = integer
            room[0, register, row] = above - max(integer * high, integer * low)
            room[1, register, row] = below - max(-integer * low, -integer * high)
            errors[column, row] = (weight - integer) / diagonal
        for behind in range(column + 1, left.shape[0]):
            share = factor[column, behind]
            for row in range(left.shape[1]):
                left[behind, row] -= share * errors[column, row]
