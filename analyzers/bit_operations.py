"""Count bit operations: the size of the multipliers that a node needs, times how often it does.

A multiplication of an a-bit and a b-bit number is a x b operations on bits. So a node has MACs x
bits of the activation x bits of the weight, as in the inference cost of QONNX. Baskin et al.,
"UNIQ: Uniform Noise Injection for Non-Uniform Quantization of Neural Networks" (2018), add the
operations of the accumulator, whose width depends on the sum; they are not counted here.
"""

import pandas as pd

from tracer.analyzers.cost.operation import LARGEST
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.energy.energy_model import operands


def bit_operations(typed: TypedModel, macs: pd.Series) -> pd.DataFrame:
    """Returns the column `bops` (Int64) of the nodes of known MACs, by node key.

    Factors of a quantised model have the width before DequantizeLinear, others that of their type.
    The value is missing where a type is unknown, or the count needs more than 64 bits.
    """
    known = {str(key): int(count) for key, count in macs.dropna().items()}
    bops = {key: 0 for key, count in known.items() if not count}
    if len(bops) < len(known):
        for key, factors in operands(typed).items():
            total = known.get(key, 0) * factors.activation_bits * factors.weight_bits
            if 0 < total <= LARGEST:
                bops[key] = total
    return pd.DataFrame({"bops": pd.Series(bops, dtype="Int64")})
