"""QTools' energies of arithmetic: polynomials through Horowitz's figures at 45 nm, in pJ.

`qkeras/qtools/config_public.py` of google/qkeras: fixed-point addition 0.003125 b; multiplication
0.002994791667 b² + 0.001041666667 b. A multiplication is as wide as its wider factor. A factor
of one bit makes it a multiplexer: 0.3 of an addition of the other width (`qenergy.py`,
`test_qenergy.py` at revision 78ea90f). A float16 addition takes 0.4 pJ and a multiplication 1.1, of
float32 0.9 and 3.7.
"""

import numpy as np

from tracer.analyzers.energy import EnergyModel, FloatEnergy
from tracer.support.types import FloatArray

_ADD = 0.003125
_MUL = (0.002994791667, 0.001041666667)  # of b² and of b
_MULTIPLEXER = 0.3


def _multiplication(operands: FloatArray, weights: FloatArray, widths: FloatArray) -> FloatArray:
    wider = np.maximum(operands, weights)
    product = _MUL[0] * wider**2 + _MUL[1] * wider
    energies = np.where(np.minimum(operands, weights) == 1, _MULTIPLEXER * _ADD * wider, product)
    return np.asarray(energies)


MODEL = EnergyModel(
    name="qtools",
    unit="pJ",
    source="QTools (google/qkeras), 45 nm",
    multiplication=_multiplication,
    addition=lambda operands, weights, widths: _ADD * widths,
    floats={"float16": FloatEnergy(1.1, 0.4), "float32": FloatEnergy(3.7, 0.9)},
)
