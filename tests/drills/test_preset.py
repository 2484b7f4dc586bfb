"""The drill of CONTRIBUTING: a preset is an entry of a module in `tracer/accumulators/hardware`."""

import json

import pytest

PRESETS = '''
"""How a machine of the drill adds."""

from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec.accumulator import Accumulator

PRESETS = (
    Preset(
        name="drill-14",
        what="Products are added to 14 bits, which wrap.",
        source="the drill",
        status="modelled",
        leaves_out="All else.",
        accumulator=Accumulator(14, "wrap"),
    ),
)
'''


@pytest.mark.nightly
def test_a_preset_takes_one_entry_and_no_edit(copy, repository):
    copy.add("tracer/accumulators/hardware/drill.py", PRESETS)
    listed = copy.tracer("interpret", "--list-accumulators")
    assert "drill-14" in listed and "Products are added to 14 bits, which wrap." in listed
    model = str(repository / "models/lenet/lenet.int8.onnx")
    runs = [
        json.loads(copy.tracer("interpret", model, "--batch", "2", "--json", *accumulator))
        for accumulator in (
            ("--accumulator", "drill-14"), ("--accumulator", "14", "--overflow", "wrap")
        )
    ]  # fmt: skip
    preset, spelled = (
        [node["overflow_outputs"] for node in run["runs"][0]["nodes"]] for run in runs
    )
    assert preset == spelled and sum(filter(None, preset)) > 0
