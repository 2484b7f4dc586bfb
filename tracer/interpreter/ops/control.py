"""If, Loop, Scan and SequenceMap: operators that run subgraphs."""

import time
from collections.abc import Sequence

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter import values
from tracer.interpreter.operators import Body, Ints, operator
from tracer.support.types import Array


@operator("If")
def if_(cond: Array, *, then_branch: Body, else_branch: Body) -> tuple[values.Value, ...]:
    """Runs the branch that `cond` (one element) selects."""
    return tuple(then_branch() if cond.item() else else_branch())


@operator("Loop")
def loop(
    M: Array | None = None, cond: Array | None = None, *carried: values.Value, body: Body
) -> tuple[values.Value, ...]:
    """Runs the body until its condition is false, at most `M` times."""
    most = None if M is None else int(M.item())
    keep = cond is None or bool(cond.item())
    states: Sequence[values.Value] = carried
    scans = Stacks(len(body.outputs) - 1 - len(carried))
    budget, began = limits.in_force(), time.monotonic()
    sizes = [values.nbytes(state) for state in carried]
    trip = 0
    while keep and (most is None or trip < most):
        budget.trip(trip + 1, began)
        outputs = body(np.array(trip, np.int64), np.array(keep), *states)
        keep = bool(outputs[0].item())
        states = outputs[1 : 1 + len(carried)]
        for state, size in zip(states, sizes, strict=True):
            budget.carried(values.nbytes(state), size)
        scans.push(outputs[1 + len(carried) :])
        trip += 1
    return (*states, *scans.stacked(body))


@operator("SequenceMap", since=17)
def sequence_map(
    input_sequence: list[values.Value], *additional_inputs: values.Value, body: Body
) -> tuple[values.Value, ...]:
    """Runs the body on each element, with the matching elements of the other sequences."""
    outputs = [
        body(element, *(v[i] if isinstance(v, list) else v for v in additional_inputs))
        for i, element in enumerate(input_sequence)
    ]
    if not outputs:
        return tuple([] for _ in body.outputs)
    return tuple(list(column) for column in zip(*outputs, strict=True))


@operator("Scan", since=9)
def scan(
    *states_and_inputs: values.Value, body: Body, num_scan_inputs: int,
    scan_input_axes: Ints = None, scan_input_directions: Ints = None, scan_output_axes: Ints = None,
    scan_output_directions: Ints = None,
) -> tuple[values.Value, ...]:  # fmt: skip
    """Runs the body once per slice of the scan inputs; direction 1 is backwards."""
    count = len(states_and_inputs) - num_scan_inputs
    states: Sequence[values.Value] = states_and_inputs[:count]
    axes = scan_input_axes or [0] * num_scan_inputs
    directions = scan_input_directions or [0] * num_scan_inputs
    moved = [np.moveaxis(v, a, 0) for v, a in zip(states_and_inputs[count:], axes, strict=True)]
    sources = [np.flip(v, 0) if back else v for v, back in zip(moved, directions, strict=True)]
    lengths = {source.shape[0] for source in sources}
    if len(lengths) != 1:
        raise ModelError(f"scan inputs of different lengths: {sorted(lengths)}")
    length = lengths.pop()
    budget, began = limits.in_force(), time.monotonic()
    budget.trip(length, began)
    scans = Stacks(len(body.outputs) - count)
    for trip in range(length):
        budget.clock(began)
        outputs = body(*states, *(source[trip] for source in sources))
        states = outputs[:count]
        scans.push(outputs[count:])
    stacks = scans.stacked(body)
    directions = scan_output_directions or [0] * len(stacks)
    axes = scan_output_axes or [0] * len(stacks)
    flipped = [np.flip(s, 0) if d else s for s, d in zip(stacks, directions, strict=True)]
    return (*states, *(np.moveaxis(o, 0, a) for o, a in zip(flipped, axes, strict=True)))


@operator("Scan", since=8)
def scan_8(
    sequence_lens: Array | None, *states_and_inputs: values.Value,
    body: Body, num_scan_inputs: int, directions: Ints = None,
) -> tuple[values.Value, ...]:  # fmt: skip
    """Scan of opset 8: all inputs have a leading batch axis, each entry its own length."""
    count = len(states_and_inputs) - num_scan_inputs
    batch = states_and_inputs[count].shape[0]
    longest = states_and_inputs[count].shape[1]
    results = []
    for index in range(batch):
        length = longest if sequence_lens is None else int(sequence_lens[index])
        states = (state[index] for state in states_and_inputs[:count])
        sources = (source[index, :length] for source in states_and_inputs[count:])
        outputs = scan(
            *states, *sources, body=body, num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
        )  # fmt: skip
        results.append([
            *outputs[:count],
            *(np.pad(o, [(0, longest - len(o)), *[(0, 0)] * (o.ndim - 1)])
              for o in outputs[count:]),
        ])  # fmt: skip
    return tuple(np.stack(column) for column in zip(*results, strict=True))


class Stacks:
    """Collects the scan outputs of a loop, and counts their bytes as live until stacked."""

    def __init__(self, count: int) -> None:
        self._lists: list[list[Array]] = [[] for _ in range(count)]
        self._bytes = 0

    def push(self, outputs: Sequence[Array]) -> None:
        """Appends the outputs of one trip."""
        for trips, value in zip(self._lists, outputs, strict=True):
            trips.append(value)
            limits.allow((len(trips), *value.shape), value.dtype)  # what they are stacked to
            nbytes = values.nbytes(value)
            limits.in_force().hold(nbytes)
            self._bytes += nbytes

    def stacked(self, body: Body) -> list[Array]:
        """Returns one array per output, with the trips along a new first axis."""
        types = body.types[len(body.types) - len(self._lists) :]
        stacks = [
            np.stack(trips) if trips else values.empty(type_)
            for trips, type_ in zip(self._lists, types, strict=True)
        ]
        limits.in_force().release(self._bytes)
        return stacks
