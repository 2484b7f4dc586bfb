"""The work of torch's operators, and their roofs, against torch's counter and the ONNX model."""

import numpy as np
import pandas as pd
import pytest

import tracer
from tracer.analyzers.roofline import with_roofs
from tracer.analyzers.views import render
from tracer.executors.registry import OperatorWork
from tracer.executors.settings import EagerSettings
from tracer.records.environment import Peak, Peaks

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tracer.executors.torch.executor import executor  # noqa: E402

LENET = "models/lenet/torch_net.py:LeNet"
PEAKS = Peaks(
    0, Peak(1e9, "float32"), Peak(1e14, "copy"), card="a card", products={"tf32": Peak(4e9, "tf32")}
)


class Small(nn.Module):
    """A product, operators that choose, write without reading, or move nothing."""

    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(1000, 8), nn.Linear(8, 16)

    def forward(self, x):
        h = self.layer(self.words(x)).transpose(1, 2)
        kept = torch.empty(2, 16, 3)
        return kept.copy_(h) + h


def works(model, array, **settings):
    return executor.work(model, [array], EagerSettings(threads=1, **settings))


def test_products_are_those_of_torchs_counter_forward_and_backward():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Flatten(), nn.Linear(4 * 25, 5))
    array = np.random.default_rng(0).standard_normal((2, 3, 11, 11)).astype(np.float32)
    rows = works(model, array, backward=True, optimizer="sgd")
    with FlopCounterMode(display=False) as counter:
        model(torch.tensor(array)).sum().backward()
    assert sum(work.flops for work in rows.values()) == counter.get_total_flops() > 0
    assert rows["0/conv2d"].operator == "convolution"
    assert rows["2/linear"].flops == 2 * 2 * 100 * 5
    assert rows["2/linear (backward)"].flops == 2 * rows["2/linear"].flops
    parameters = sum(p.nbytes for p in model.parameters())
    assert rows["optimizer/SGD.step"].bytes_written == parameters
    assert rows["optimizer/SGD.step"].bytes_read == 2 * parameters


def test_bytes_are_those_of_the_tensors_that_are_read_and_written():
    rows = works(Small(), np.array([[1, 2, 3], [1, 5, 6]]))
    tokens, width = 6, 16
    words, product, copy = (rows[name] for name in ("words/embedding", "layer/linear", "copy_"))
    assert words.bytes_written == 4 * tokens * 8
    assert words.bytes_read == 2 * words.bytes_written  # the rows and the indices, not all words
    assert product.bytes_read == 4 * (tokens * 8 + 8 * width + width)
    assert product.bytes_written == 4 * tokens * width
    assert (copy.bytes_read, copy.bytes_written) == (4 * tokens * width, 4 * tokens * width)
    assert rows["add"].bytes_read == 2 * 4 * tokens * width
    assert not {"transpose", "empty"} & set(rows)  # a view, and memory that nothing writes


def test_rows_have_the_work_of_the_onnx_model():
    trace = tracer.profile_framework(
        LENET, framework="torch", batch=3, runs=3, threads=1, in_process=True,
        peaks=lambda threads: PEAKS,
    )  # fmt: skip
    assert (
        trace.nodes["macs"].sum() == 3 * tracer.count("models/lenet/lenet.onnx").nodes["macs"].sum()
    )
    assert trace.environment.peaks == PEAKS
    text = "1 GFLOP/s float32, 4 GFLOP/s tf32, 100 TB/s memory (a card)"
    assert text in render(trace, "md").decode()


def test_rows_have_the_roof_of_their_type_and_of_memory():
    table = pd.DataFrame({"node": ["conv", "linear", "relu", "view"]})
    for name in ("time_us", "time_us_ci95_low", "time_us_ci95_high"):
        table[name] = 100.0
    works = {
        "conv": OperatorWork("convolution", "tf32", 200_000, 10, 10),
        "linear": OperatorWork("addmm", "float32", 50_000, 10, 10),
        "relu": OperatorWork("relu", "float32", 0, 1_000_000, 1_000_000),
    }
    rows = with_roofs(table, works, PEAKS).set_index("node")
    assert rows["roof_fraction"].dropna().to_dict() == pytest.approx(
        {"conv": 0.5, "linear": 0.5, "relu": 2e6 / 100e-6 / 1e14}
    )
    assert rows["bound"].dropna().to_dict() == {
        "conv": "compute", "linear": "compute", "relu": "memory"
    }  # fmt: skip
    assert rows["macs"].dropna().to_dict() == {"conv": 100_000, "linear": 25_000, "relu": 0}
    assert np.isnan(rows["gflops_per_s"]["relu"])
    assert rows["gflops_per_s"]["conv"] == pytest.approx(2.0)


def test_without_peaks_nothing_is_counted():
    trace = tracer.profile_framework(LENET, framework="torch", runs=3, threads=1, in_process=True)
    assert trace.nodes["macs"].isna().all() and trace.environment.peaks is None
