"""Recurrent layers over the full, padded sequence: W x + R h per step, then the gates."""

from tracer.analyzers.cost.count import Count, Operation, counts, require
from tracer.analyzers.cost.rules.elementwise import per_element
from tracer.graph.operators import MICROSOFT

# Per hidden unit and step: gates, uses of each activation, arithmetic of the state.
_CELLS = {
    "RNN": (1, (("Tanh", 1),), Count()),
    # r h; (1 - z) n + z h
    "GRU": (3, (("Sigmoid", 2), ("Tanh", 1)), Count(adds=2, muls=3)),
    # f c + i g; o tanh(c)
    "LSTM": (4, (("Sigmoid", 3), ("Tanh", 1), ("Tanh", 1)), Count(adds=1, muls=3)),
}


@counts("RNN", "GRU", "LSTM", settings=(4, 5, 6))
@counts("DynamicQuantizeLSTM", domain=MICROSOFT, settings=(4, 5, 6, 8, 9, 10, 11))
def _recurrent(op: Operation) -> Count:
    """Counts a layer; X is [sequence, batch, input] or [batch, sequence, input]."""
    cell = op.op_type.removeprefix("DynamicQuantize")
    gates, activations, state = _CELLS[cell]
    steps = op.input(0).shape[0] * op.input(0).shape[1]
    weights, recurrence = op.input(1), op.input(2)
    require(op.input(0).shape[2] == weights.shape[2 if cell == op.op_type else 1])
    batch = 0 if op.integer("layout", 0) else 1
    if op.has(5) and (state_before := op.input(5).known_shape):
        require(op.input(0).shape[batch] == state_before[batch])
    directions = weights.shape[0]
    units = op.integer("hidden_size", 0) or recurrence.shape[-1]
    preactivations = Count(adds=gates * (3 if op.has(3) else 1))  # two biases, and input + state
    if op.number("clip", 0.0):
        preactivations += Count(other=2 * gates)
    per_unit = state + preactivations
    if cell == "LSTM" and op.has(7):
        per_unit += Count(adds=3, muls=3)  # peepholes
    names = op.texts("activations") or tuple(name for name, _ in activations) * directions
    elementwise = per_unit * directions
    for position, name in enumerate(names):
        elementwise += per_element(name) * activations[position % len(activations)][1]
    macs = Count(macs=weights.size + recurrence.size)
    return macs * steps + elementwise * (units * steps)
