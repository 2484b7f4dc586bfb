"""ONNX's own backend suite: its cases, and how an answer is compared."""

from __future__ import annotations

import math
import os
import pickle
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from tests.conformance.operators import Key
from tracer.graph.model import canonical_domain

FILE_KINDS = ("simple", "pytorch-converted", "pytorch-operator")
ROOT = Path(__file__).parents[2]
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@cache
def node_cases() -> list[TestCase]:
    """The 1,884 cases of single operators (and their expansions).

    ONNX takes 20 seconds to build them, in each process that collects tests: a file keeps them.
    """
    kept = ROOT / "build" / f"cases.onnx-{onnx.__version__}.numpy-{np.__version__}.pickle"
    with suppress(FileNotFoundError):
        return pickle.loads(kept.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases divide by zero on purpose
        cases = load_model_tests(kind="node")
    kept.parent.mkdir(exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(cases))
    part.replace(kept)
    return cases


def file_cases() -> list[TestCase]:
    """The cases that are folders with a model and data sets."""
    return [case for kind in FILE_KINDS for case in load_model_tests(kind=kind)]


def light_models() -> list[Path]:
    """The nine architectures whose weights are constants of the graph."""
    return sorted(path for path in LIGHT.glob("light_*.onnx"))


def data_sets(case: TestCase) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs of a case, in memory or in its folder."""
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield [array(v) for v in inputs], [array(v) for v in outputs]
        return
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    for data in sorted(folder.glob("test_data_set_*")):
        yield (
            [read(f, v) for f, v in zip(_files(data, "input"), model.graph.input, strict=False)],
            [read(f, v) for f, v in zip(_files(data, "output"), model.graph.output, strict=True)],
        )


def key_of(case: TestCase) -> Key:
    """The operator version that a case is for: the one of its last node."""
    node = case.model.graph.node[-1]
    domain = canonical_domain(node.domain)
    opsets = {canonical_domain(o.domain): o.version for o in case.model.opset_import}
    schema = onnx.defs.get_schema(node.op_type, opsets[domain], domain)
    return schema.domain, schema.name, schema.since_version


def array(value: Any) -> Any:
    """Some cases hold protobufs in place of arrays."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def read(file: Path, declared: onnx.ValueInfoProto) -> Any:
    """A stored value of the declared kind."""
    kinds = {
        "tensor_type": (onnx.TensorProto, onnx.numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, onnx.numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, onnx.numpy_helper.to_optional),
    }
    proto, convert = kinds[declared.type.WhichOneof("value")]
    return convert(proto.FromString(file.read_bytes()))


def assert_similar(actual: Any, expected: Any, rtol: float, atol: float) -> None:
    """Same kind, type, shape, and values within the case's tolerance.

    onnx's runner compares the tensors; sequences are walked here, as the runner takes the tensors
    of a sequence for sequences themselves.
    """
    if isinstance(expected, list | tuple):
        assert isinstance(actual, list | tuple)
        assert len(actual) == len(expected)
        for ours, theirs in zip(actual, expected, strict=True):
            assert_similar(ours, theirs, rtol, atol)
    elif expected is None:
        assert actual is None
    elif isinstance(expected, dict):
        assert actual == expected
    else:
        assert isinstance(actual, np.ndarray)
        Runner.assert_similar_outputs([np.asarray(expected)], [actual], rtol, atol)


def error(ours: Any, theirs: Any) -> float:
    """The largest difference of numbers, relative to the largest number of `theirs`."""
    if isinstance(theirs, list):
        return max(map(error, ours, theirs), default=0.0)
    if not isinstance(theirs, np.ndarray) or theirs.dtype.hasobject or not theirs.size:
        return 0.0
    with np.errstate(all="ignore"):
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        known = np.isfinite(a) & np.isfinite(b)
        scale = np.abs(b[known]).max(initial=0.0)
        return float(np.abs(a[known] - b[known]).max(initial=0.0) / (scale or 1.0))


def power_of_ten(error: float) -> float:
    """The error rounded up to a power of ten."""
    return float(10.0 ** math.ceil(math.log10(error)))


def stored(ours: Any, theirs: Any) -> Any:
    """Our array of bytes that numpy has no type for, as bytes where the other side has bytes."""
    both = isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray)
    if both and ours.dtype.kind == "V" and theirs.dtype == np.uint8:
        return ours.view(np.uint8)
    return ours


def _files(folder: Path, prefix: str) -> Sequence[Path]:
    paths = folder.glob(f"{prefix}_*.pb")
    return sorted(paths, key=lambda path: int(path.stem.removeprefix(f"{prefix}_")))
