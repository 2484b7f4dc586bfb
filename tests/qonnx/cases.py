"""Values of QONNX's operators, computed by qonnx itself.

python -m tests.qonnx.cases    writes values.json anew, in an environment with qonnx 1.0.0
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

VALUES = Path(__file__).with_name("values.json")
MODES = ("ROUND", "CEIL", "FLOOR", "DOWN", "UP", "HALF_UP", "half_down")
X = np.float32([*np.arange(-10, 11) / 4, -300, 300, 1e-9, np.inf, -np.inf])
"""Quarters, so that halves are exact, and numbers that are clipped."""


@dataclass(frozen=True)
class Case:
    """One node: operator, inputs after x, attributes."""

    op_type: str
    x: np.ndarray
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        return f"{self.op_type}({', '.join(map(_text, self.inputs))}; {settings})"

    @property
    def arrays(self) -> list[np.ndarray]:
        return [self.x, *(np.asarray(each, np.float32) for each in self.inputs)]


def cases() -> Iterator[Case]:
    yield from _quants()
    yield from _others()


def _quants() -> Iterator[Case]:
    for mode, signed, narrow in itertools.product(MODES, (0, 1), (0, 1)):
        attributes = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
        yield Case("Quant", X, (0.5, 0, 3), attributes)
        yield Case("Quant", X, (0.3, 0.25, 4), attributes)  # a zero point that is no integer
        yield Case("Quant", X, (1, 0, 3.5), attributes)  # bits that are no integer
        yield Case("IntQuant", X, (1, 0, 1), attributes)
        yield Case("Quant", X, (0.25, 5, 2), attributes)
    channels = np.float32([[0.25], [0.5], [1.5]])
    rows = np.stack([X, -X, X / 4])
    for bits in (2, 8, [[1], [3.5], [4]]):
        if np.ndim(bits) == 0:
            yield Case("Quant", rows, (channels, 0, bits), {"signed": 1, "narrow": 1})
        yield Case("Quant", rows, (channels, [[0], [1], [2]], bits), {"signed": 0, "narrow": 0})
    yield Case("BipolarQuant", X, (0.5,))
    yield Case("BipolarQuant", rows, (channels,))


def _others() -> Iterator[Case]:
    finite = X[np.isfinite(X)]
    for mode in MODES:
        named = {"rounding_mode": mode}
        yield Case("Trunc", finite, (0.125, 0, 8, 4), named)
        yield Case("Trunc", finite, (0.125, 3, 6, 5), named)
        for signed, narrow in itertools.product((0, 1), (0, 1)):
            attributes = {**named, "signed": signed, "narrow": narrow}
            yield Case("Trunc", finite, (0.125, 0, 8, 0.5, 3), attributes)
            yield Case("Trunc", finite, (0.125, 2, 8, 0.25, 3), attributes)
    wide = np.float32([*X, *(X[:22] / 77), *(X[:22] * 333)])
    formats = ((4, 3, 7, 448), (5, 2, 15, 57344), (2, 1, 1, 6), (3, 2, 3, 1e9))
    for (e, m, bias, most), mode in itertools.product(formats, ("ROUND", "CEIL", "FLOOR")):
        kinds = ((0, 1, 1), (1, 0, 0), (0, 1, 0))
        for has_inf, has_nan, saturation in kinds:
            attributes = {
                "rounding_mode": mode, "has_inf": has_inf, "has_nan": has_nan, "has_subnormal": 1,
                "saturation": saturation,
            }  # fmt: skip
            scale = 1 if has_nan else 0.75
            yield Case("FloatQuant", wide, (scale, e, m, bias, most), attributes)
    steps = np.float32([[-2, -0.5, 0.125, 0.125, 3], [0, 0.25, 1, 1.5, 2]])
    shapes = ((30, 2), (5, 6, 2), (3, 2, 2, 5), (3, 2, 1, 2, 5))
    for shape in shapes:
        x = np.resize(np.float32([*np.arange(-28, 29) / 8, np.nan]), shape)
        yield Case("MultiThreshold", x, (steps,), {"out_dtype": "UINT3"})
        yield Case("MultiThreshold", x, (steps[:1],), {"out_dtype": "INT3", "out_bias": -3.0,
                                                       "out_scale": 2.0})  # fmt: skip
    x = np.resize(X, (3, 5, 4, 2))
    yield Case("MultiThreshold", x, (steps,), {"out_dtype": "UINT3", "data_layout": "NHWC"})


def by_qonnx(case: Case) -> np.ndarray:
    """The output that qonnx's own code computes."""
    with np.errstate(all="ignore"):
        return np.asarray(_COMPUTE[case.op_type](*case.arrays, **case.attributes), np.float32)


def recorded() -> dict[str, np.ndarray]:
    """The outputs of all cases that qonnx 1.0.0 computed, by the text of the case."""
    stored = json.loads(VALUES.read_text())
    return {name: np.float32([float(text) for text in row.split()]) for name, row in stored.items()}


def _text(value: Any) -> str:
    return str(np.asarray(value).tolist())


def _quant(x, scale, zero, bits, *, signed, narrow, rounding_mode="ROUND"):
    from qonnx.custom_op.general.quant import quant

    if bits.ndim:  # qonnx knows one number of bits at a time
        rows = [_quant(*row, signed=signed, narrow=narrow, rounding_mode=rounding_mode)
                for row in zip(x, scale, zero, bits[:, 0], strict=True)]  # fmt: skip
        return np.stack(rows)
    return quant(x, scale, zero, bits, signed, narrow, rounding_mode)


def _bipolar(x, scale):
    from qonnx.custom_op.general.bipolar_quant import binary_quant

    return binary_quant(x, scale)


def _trunc(x, scale, zero, bits, output, out_bits=None, *, rounding_mode, signed=1, narrow=0):
    from qonnx.custom_op.general.trunc import trunc_v1, trunc_v2

    if out_bits is None:
        return trunc_v1(x, scale, zero, bits, output, rounding_mode)
    return trunc_v2(x, scale, zero, bits, narrow, signed, output, out_bits, rounding_mode)


def _float(x, scale, exponent, mantissa, bias, most, **attributes):
    from qonnx.custom_op.general.floatquant import float_quant

    return float_quant(x, scale, exponent, mantissa, bias, True, most, **attributes)


def _thresholds(x, thresholds, *, out_dtype, out_scale=None, out_bias=None, data_layout=""):
    """qonnx's node exchanges the axis of the channels with the second, and back."""
    from qonnx.custom_op.general.multithreshold import multithreshold

    layout = data_layout or {2: "NC", 3: "NWC", 4: "NCHW"}.get(x.ndim, "NC")
    axis = layout.index("C")
    turned = multithreshold(x.swapaxes(axis, 1), thresholds, out_scale, out_bias)
    return turned.swapaxes(axis, 1)


_COMPUTE = {
    "Quant": _quant, "IntQuant": _quant, "BipolarQuant": _bipolar, "Trunc": _trunc,
    "FloatQuant": _float, "MultiThreshold": _thresholds,
}  # fmt: skip


if __name__ == "__main__":
    rows = {
        str(case) + f" {list(case.x.shape)}": " ".join(
            str(value) for value in by_qonnx(case).reshape(-1).tolist()
        )
        for case in cases()
    }
    VALUES.write_text(json.dumps(rows, indent=0) + "\n")
