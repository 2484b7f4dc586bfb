"""The drill of CONTRIBUTING: an energy model is a module in `analyzers/energy/models`."""

import json

import pytest

ENERGY_MODEL = '''
"""One unit for an addition, two for a multiplication, whatever their widths."""

import numpy as np

from tracer.analyzers.energy import EnergyModel
from tracer.support.types import FloatArray


def _multiplication(operands: FloatArray, weights: FloatArray, widths: FloatArray) -> FloatArray:
    return np.full_like(widths, 2)


def _addition(operands: FloatArray, weights: FloatArray, widths: FloatArray) -> FloatArray:
    return np.ones_like(widths)


MODEL = EnergyModel("mine", "steps", "a drill", _multiplication, _addition)
'''


@pytest.mark.nightly
def test_an_energy_model_takes_one_file_and_no_edit(copy, repository):
    copy.add("analyzers/energy/models/mine.py", ENERGY_MODEL)
    model = str(repository / "models/lenet/lenet.int8.onnx")
    answer = copy.tracer(
        "whatif", model, "--accumulator", "24", "--data", "digits", "--limit", "2",
        "--energy", "mine", "--no-search", "--json",
    )  # fmt: skip
    result = json.loads(answer)
    (variant,) = result["variants"]
    energies = [2 * node["muls"] + node["adds"] for node in variant["nodes"]]
    assert result["energy"]["unit"] == "steps"
    assert variant["widths"][0]["energy"] == sum(energies)
    unknown = copy.run("-c", "from analyzers import energy; energy.find('yours')")
    assert "mine" in unknown.stderr
