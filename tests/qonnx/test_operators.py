"""QONNX's operators against qonnx's own code, and against values that it computed."""

import numpy as np
import pytest
from onnx import helper

from tests.qonnx.cases import Case, by_qonnx, cases, recorded
from tracer.errors import ModelError
from tracer.interpreter.interpreter import Interpreter

CASES = list(cases())
DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")


def test_recorded_values():
    known = recorded()
    assert len(known) == len(CASES)
    for case in CASES:
        expected = known[f"{case} {list(case.x.shape)}"].reshape(case.x.shape)
        np.testing.assert_array_equal(_run(case), expected, str(case))


def test_qonnx_computes_the_same():
    pytest.importorskip("qonnx", reason="qonnx is not installed")
    for case in CASES:
        np.testing.assert_array_equal(_run(case), by_qonnx(case), str(case))


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_with_and_without_an_import(domain):
    case = CASES[0]
    expected = _run(case)
    for imported in (True, False):
        np.testing.assert_array_equal(_run(case, domain, imported), expected)


def test_a_rounding_mode_that_is_not_known():
    case = Case("Quant", np.float32([1]), (1, 0, 3), {"rounding_mode": "STOCHASTIC"})
    with pytest.raises(ModelError, match="rounding_mode 'STOCHASTIC'"):
        _run(case)


def test_thresholds_of_another_number_of_channels():
    case = Case("MultiThreshold", np.zeros((2, 3), np.float32), (np.zeros((2, 4)),))
    with pytest.raises(ModelError, match="2 channels"):
        _run(case)


def test_a_large_tensor_is_computed_in_blocks():
    x = np.linspace(-9, 9, 1 << 20, dtype=np.float32).reshape(8, -1)
    scale = np.float32(2.0) ** np.arange(-4, 4, dtype=np.float32)[:, None]
    case = Case("Quant", x, (scale, 0, 4), {"signed": 1, "narrow": 0})
    np.testing.assert_array_equal(_run(case), np.clip(np.rint(x / scale), -8, 7) * scale)


def _run(case: Case, domain: str = DOMAINS[0], imported: bool = True) -> np.ndarray:
    arrays = case.arrays
    names = [f"i{index}" for index in range(len(arrays))]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))
    inputs = [helper.make_tensor_value_info(name, kind, array.shape)
              for name, array in zip(names, arrays, strict=True)]  # fmt: skip
    node = helper.make_node(case.op_type, names, ["y"], domain=domain, **case.attributes)
    output = helper.make_tensor_value_info("y", kind, None)
    opsets = [helper.make_opsetid("", 13)]
    opsets += [helper.make_opsetid(domain, 1)] if imported else []
    graph = helper.make_graph([node], "case", inputs, [output])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (result,) = Interpreter(model).run(None, dict(zip(names, arrays, strict=True)))
    assert result.dtype == np.float32
    return result
