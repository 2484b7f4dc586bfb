"""What mutants are made of: models, traces, arrays and texts that tracer reads, all small."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import numpy_helper

import tests.hostile.test_models  # noqa: F401 - fills CASES
from tests.conformance import suite
from tests.fuzz import quantized, quiet
from tests.hostile.corpus import CASES

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "tests/fixtures/traces"
LENET = ROOT / "models/lenet/lenet.int8.onnx"
SMALL = 80_000
"""Most bytes of a model: a mutant shall take a tenth of a second."""

POLICY = """\
["conv*"]
bits = 16
overflow = "wrap"
order = "chunked(32)"
product_bits = 16
product_shift = 4
product_rounding = "floor"

["*"]
bits = 20
bias = "last"
convention = "magnitude"
"""
ENERGY = """\
name = "ours"
unit = "pJ"
source = "our flow"

[mul]
bits = "operands"
polynomial = [0, 0.001, 0.003]

[add]
bits = "accumulator"
table = { 8 = 0.03, 32 = 0.1 }

[float32]
mul = 3.7
add = 0.9
"""


@dataclass(frozen=True, slots=True)
class Seed:
    """A file by name; `kind` says which commands read it and how it is mutated."""

    name: str
    kind: str
    content: bytes


def seeds() -> Mapping[str, list[Seed]]:
    """Returns the seeds by kind, the same ones in the same order for one checkout."""
    found: dict[str, list[Seed]] = {}
    for seed in (*_models(), *_quantized(), *_traces(), *_inputs()):
        found.setdefault(seed.kind, []).append(seed)
    return found


def _models() -> Iterator[Seed]:
    for case in suite.node_cases():
        yield Seed(case.name, "model", case.model.SerializeToString())
    for file in [*sorted(ROOT.glob("models/*/*.onnx")), *suite.light_models()]:
        if file.stat().st_size <= SMALL:
            yield Seed(file.stem, "model", file.read_bytes())
    for name, case in CASES.items():
        made = case()
        content = made if isinstance(made, bytes) else made.SerializeToString()
        if len(content) <= SMALL:
            yield Seed(name, "model", content)


def _quantized() -> Iterator[Seed]:
    for name, content in quantized.models():
        yield Seed(name, "quantized", content)
    yield Seed(LENET.stem, "quantized", LENET.read_bytes())


def _traces() -> Iterator[Seed]:
    """Traces of an earlier version, and the same ones as today's version writes them."""
    for file in sorted(TRACES.glob("*.trace")):
        yield Seed(file.stem, "trace", file.read_bytes())
        if file.stem != "whatif":  # whose file cannot be written again
            yield Seed(f"{file.stem} today", "trace", _written("report", str(file)))
    yield Seed("whatif today", "trace", _written(
        "whatif", str(LENET), "--accumulator", "18:20", "--data", "digits", "--limit", "8",
        "--no-search", "--threads", "1",
    ))  # fmt: skip


def _written(*args: str, ending: str = ".trace", option: str = "-o") -> bytes:
    """The file that a command writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"written{ending}"
        quiet.run(*args, option, str(file))
        return file.read_bytes()


def _inputs() -> Iterator[Seed]:
    images = np.linspace(0, 1, 2 * 28 * 28, dtype=np.float32).reshape(2, 1, 28, 28)
    stream = io.BytesIO()
    np.savez(stream, x=images, label=np.array([3, 5]))
    yield Seed("images", "arrays", stream.getvalue())
    tensor = numpy_helper.from_array(images[:1], "x")
    yield Seed("input_0", "tensor", tensor.SerializeToString())
    tensor.float_data.extend(images[0].reshape(-1))
    tensor.ClearField("raw_data")
    yield Seed("input_0 in fields", "tensor", tensor.SerializeToString())
    yield Seed("policy", "policy", POLICY.encode())
    yield Seed("energy", "energy", ENERGY.encode())
    certificate = _written(
        "interpret", str(LENET), "--accumulator", "24", "--data", "digits", "--limit", "2",
        "--threads", "1", ending=".json", option="--certificate",
    )  # fmt: skip
    yield Seed("certificate", "certificate", certificate)
