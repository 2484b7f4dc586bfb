"""Attention: Q K^T and the weighted sum of V are MACs; scale, mask and softmax are added.

Every score counts, including scores that a causal mask or a sliding window hides.
"""

from tracer.analyzers.cost import traffic
from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts
from tracer.analyzers.cost.rules import softmax
from tracer.analyzers.cost.traffic import Bytes


@counts("Attention", settings=(3, 6))
def _attention(op: Operation) -> Count:
    query, key, value = (op.input(index).shape for index in range(3))
    if len(query) == 3:
        heads = op.integer("q_num_heads", 1)
        width = query[-1] // heads
        value_width = value[-1] // op.integer("kv_num_heads", heads)
    else:
        heads, width, value_width = query[1], query[-1], value[-1]
    past = op.input(4).shape[-2] if op.has(4) else 0
    scores = query[0] * heads * query[-2] * (key[-2] + past)
    count = scaled_dot_product(scores, width, value_width, masks=int(op.has(3)))
    if op.number("softcap", 0.0):
        count += SOFTCAP * scores
    return count


@counts("FlexAttention", domain="ai.onnx.preview")
def _flex(op: Operation) -> Count:
    """Counts attention of heads; nodes of its bodies, which change scores or shares, count too."""
    batch, heads, tokens, width = op.input(0).shape
    scores = batch * heads * tokens * op.input(1).shape[2]
    return scaled_dot_product(scores, width, op.input(2).shape[3], masks=0)


SOFTCAP = Count(muls=1, other=2)
"""c tanh(score / c)."""


def scaled_dot_product(scores: int, width: int, value_width: int, masks: int) -> Count:
    """Counts softmax(scale × Q K^T + masks) V, for heads of these widths."""
    per_score = Count(macs=width + value_width, adds=masks, muls=1) + softmax.PER_ELEMENT
    return per_score * scores


def _rotary_traffic(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads the rows of both tables that the tokens need; without positions, all of them."""
    if not op.has(3):
        return traffic.everything(op)
    return rotary_traffic(op, tables=(1, 2))


def rotary_traffic(op: Operation, tables: tuple[int, int]) -> tuple[Bytes, Bytes]:
    """Counts everything, but of the tables a row for each token at most."""
    shape = op.input(0).shape
    tokens = shape[0] * shape[2 if len(shape) == 4 else 1]
    names = {op.node.inputs[index] for index in tables}
    rest = traffic.total(operand for operand in op.inputs() if operand.name not in names)
    rows = [table_rows(op, index, tokens) for index in tables]
    return traffic.known_sum((rest, *rows)), traffic.total(op.outputs())


def table_rows(op: Operation, index: int, rows: int) -> Bytes:
    """Returns the bytes of `rows` rows of an input, at most of all."""
    table = op.input(index)
    if table.nbytes is None:
        return None
    return table.nbytes * min(rows, table.shape[0]) // max(table.shape[0], 1)


@counts("RotaryEmbedding", settings=(3,), moves=_rotary_traffic)
def _rotary(op: Operation) -> Count:
    shape = op.input(0).shape
    heads = op.integer("num_heads", 0)
    width = shape[-1] if len(shape) == 4 else shape[-1] // max(heads, 1)
    return rotary(op, width)


def rotary(op: Operation, width: int) -> Count:
    """Counts x cos ± y sin for the rotated elements: `rotary_embedding_dim` of each head."""
    rotated = op.integer("rotary_embedding_dim", 0) or width
    return Count(adds=1, muls=2) * (op.input(0).size // max(width, 1) * rotated)


@counts("LinearAttention", settings=(3,))
@counts("LinearAttention", domain="com.microsoft", settings=(3,))
def _linear(op: Operation) -> Count:
    """Counts the recurrence of the specification, token by token, for any size of chunks."""
    batch, tokens = op.input(0).shape[:2]
    query_heads, heads = op.integer("q_num_heads", 1), op.integer("kv_num_heads", 1)
    width = op.input(0).shape[2] // query_heads
    value_width = op.input(2).shape[2] // heads
    state = width * value_width
    rule = op.text("update_rule", "gated_delta")
    read = Count(macs=state, muls=value_width) * max(query_heads, heads)  # scale x q S
    update = Count(macs=state)  # S + k v
    if rule.endswith("delta"):
        update += Count(macs=state, adds=value_width, muls=value_width)  # beta (v - S k)
    if rule.startswith("gated"):
        update += Count(muls=state)  # exp(g) S
    gates = Count(other=op.input(4).size if rule.startswith("gated") else 0)
    return (read + update * heads) * (batch * tokens) + gates
