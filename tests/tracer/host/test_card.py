"""The peaks of a card, measured with the processor as the device, and the types of products."""

import math

import pytest

torch = pytest.importorskip("torch")

from tracer.host import card, read_peaks, write_peaks  # noqa: E402
from tracer.records.environment import Peak, Peaks  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def settings():
    """Restores what this file sets in torch."""
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.fp32_precision, conv.allow_tf32
    yield
    matmul.fp32_precision, conv.allow_tf32 = before


def test_every_peak_is_measured(monkeypatch):
    monkeypatch.setattr(card, "_SETTLED_S", 0.0)
    monkeypatch.setitem(card._NEEDED, "bfloat16", (0, 0))
    monkeypatch.setitem(card._NEEDED, card.TF32, (0, 0))
    peaks = card.measure(CPU, sizes=(64, 32), copied=8 << 20)
    assert set(peaks.arithmetic) == {"float32", "tf32", "bfloat16"}
    rates = [peak.rate for peak in (peaks.memory, *peaks.arithmetic.values())]
    assert all(math.isfinite(rate) and rate > 1e6 for rate in rates)
    assert peaks.float32.by.startswith(f"torch {torch.__version__} matmul of float32, ")
    assert "MiB" in peaks.memory.by


def test_a_type_that_the_library_lacks_has_no_peak(monkeypatch):
    def fails(*args, **kwargs):
        raise NotImplementedError("no such product")

    monkeypatch.setattr(card, "_SETTLED_S", 0.0)
    monkeypatch.setitem(card._NEEDED, card._FLOAT8, (0, 0))
    monkeypatch.setattr(torch, "_scaled_mm", fails)
    assert set(card.measure(CPU, sizes=(32,), copied=8 << 20).arithmetic) == {"float32"}


def test_convolutions_use_tf32_by_default_and_matrix_products_do_not():
    assert (card.multiplied_as("conv2d"), card.multiplied_as("addmm")) == ("tf32", "float32")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert (card.multiplied_as("conv2d"), card.multiplied_as("addmm")) == ("float32", "tf32")


@pytest.mark.parametrize("before", ["none", "tf32", "ieee"])
def test_a_measurement_sets_the_precision_and_leaves_that_of_the_user(before):
    setting = torch.backends.cuda.matmul
    setting.fp32_precision = before
    for name, within in (("tf32", "tf32"), ("float32", "float32"), ("float16", "float32")):
        with card.multiplying(name):
            assert card.multiplied_as("mm") == within
    assert setting.fp32_precision == before


def test_peaks_of_a_card_are_stored(tmp_path):
    products = {"tf32": Peak(4e14, "b"), "float8_e4m3fn": Peak(1e15, "c")}
    peaks = Peaks(0, Peak(5e13, "a"), Peak(3e12, "d"), card="NVIDIA H100", products=products)
    assert write_peaks(tmp_path / "peaks", peaks)
    assert read_peaks(tmp_path / "peaks") == peaks
    assert peaks.arithmetic == {"float32": Peak(5e13, "a"), **products}
