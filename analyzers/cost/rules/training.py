"""Optimizers of training, domain ai.onnx.preview.training: work for each weight that they update.

Rates that are the same for all weights are not counted.
"""

from tracer.analyzers.cost.count import Count, Operation, UnknownWorkError, counts

_TRAINING = "ai.onnx.preview.training"

_DECAY = Count(adds=1, muls=1)  # G + norm_coefficient X


@counts("Adagrad", domain=_TRAINING, settings=(0, 1))
def _adagrad(op: Operation) -> Count:
    """H + G G; X - rate G / (sqrt(H) + epsilon)."""
    return (_regularised(op) + Count(adds=3, muls=2, other=2)) * _weights(op, tensors=3)


@counts("Adam", domain=_TRAINING, settings=(0, 1))
def _adam(op: Operation) -> Count:
    """Averages of G and G G; X - rate V / (sqrt(H) + epsilon), and a decay of the result."""
    decay = Count(muls=1) if op.number("norm_coefficient_post", 0.0) else Count()
    each = Count(adds=4, muls=6, other=2) + decay
    return (_regularised(op) + each) * _weights(op, tensors=4)


@counts("Momentum", domain=_TRAINING, settings=(0, 1))
def _momentum(op: Operation) -> Count:
    """alpha V + beta G; X - rate V, or with Nesterov's momentum X - rate (G + alpha V)."""
    look_ahead = Count(adds=1, muls=1) if op.text("mode", "standard") == "nesterov" else Count()
    each = Count(adds=2, muls=3) + look_ahead
    return (_regularised(op) + each) * _weights(op, tensors=3)


@counts("Gradient", domain=_TRAINING)
def _gradient(op: Operation) -> Count:
    raise UnknownWorkError("it differentiates a graph, whose backward nodes are not in the model")


def _regularised(op: Operation) -> Count:
    return _DECAY if op.number("norm_coefficient", 0.0) else Count()


def _weights(op: Operation, tensors: int) -> int:
    """Returns the weights; after rate and step, inputs are `tensors` groups, weights first."""
    count = (len(op.node.inputs) - 2) // tensors
    return sum(op.input(index).size for index in range(2, 2 + count))
