"""Memory of commands on a chain of matrix products with 2.4 GB of weights, ÷ these weights.

With `--int8`, weights are quantised and four times as many. `export` writes a chain of torch's
linear layers of the same size.

The memory is that of a command and its children, each page once: the sum of the proportional set
sizes (PSS), which Linux tells. Pages of a mapped file count, although the system can drop them;
`allocated` leaves them out.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks._measure import python

_COMMANDS = {
    "count": "count MODEL",
    "profile": "profile MODEL --runs 3",
    "replay": "profile MODEL --runs 3 --replay 1",
    "interpret": "interpret MODEL",
    "accumulator": "interpret MODEL --fixed 8:5 --accumulator 24",
    "fusions": "fusions MODEL",
    "compare": "compare MODEL MODEL@ort:extended --sessions 2 --precision 100%",
    "quantize": "quantize MODEL --calibrate DATA -o OUTPUT --limit 1 --test-limit 1",
    "export": "export CODE -o EXPORTED",
}
_CODE = """
import torch

class Chain(torch.nn.Sequential):
    input_shape = ({size},)

    def __init__(self):
        super().__init__(*(torch.nn.Linear({size}, {size}, bias=False) for _ in range({layers})))
"""
FLOAT, INT8 = np.dtype(np.float32), np.dtype(np.int8)
_STEPS = 40
"""Steps of the int8 weights in their standard deviation."""
_EVERY_S = 0.05
_ROWS = 256


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory of a command, in bytes: all pages, and those that are not of a file."""

    total: int
    allocated: int
    seconds: float


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--int8", action="store_true", help="quantised weights, twice as wide")
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=", ".join(_COMMANDS))
    args = parser.parse_args()
    kind = INT8 if args.int8 else FLOAT
    size = args.size * (2 if args.int8 else 1)
    weights = args.layers * size**2 * kind.itemsize
    print(f"{weights / 1e9:.2f} GB of weights{'':<8} peak ÷ weights  allocated ÷ weights  seconds")
    with tempfile.TemporaryDirectory() as folder:
        files = _files(Path(folder), args.layers, size, kind)
        for name in args.commands or _COMMANDS:
            words = [
                files.get(word, word.replace("MODEL", files["MODEL"]))
                for word in _COMMANDS[name].split()
            ]
            used = peak(python("-m", "tracer", *words))
            ratios = f"{used.total / weights:>14.2f}  {used.allocated / weights:>19.2f}"
            print(f"{name:<24}  {ratios}  {used.seconds:7.1f}", flush=True)


def _files(folder: Path, layers: int, size: int, kind: np.dtype[Any]) -> dict[str, str]:
    """Writes the model, its weights and a sample, and returns their paths."""
    random, length = np.random.default_rng(0), kind.itemsize * size**2
    with (folder / "chain.bin").open("wb") as stream:
        for _ in range(layers):
            for start in range(0, size, _ROWS):
                rows = random.standard_normal((min(_ROWS, size - start), size), np.float32)
                rows *= np.float32(_STEPS if kind == INT8 else size**-0.5)
                stream.write(rows.clip(-127, 127).astype(kind).tobytes())
    stored = [_stored(f"w{place}", kind, size, place * length) for place in range(layers)]
    nodes = []
    for place in range(layers):
        if kind == INT8:
            nodes += _quantized(place)
        else:
            nodes.append(helper.make_node("MatMul", [f"x{place}", f"w{place}"], [f"x{place + 1}"]))
    if kind == INT8:
        scales = {"xs": 0.03, "ws": 1 / _STEPS / size**0.5}
        values = {name: np.float32(scale) for name, scale in scales.items()} | {"xz": np.uint8(128)}
        stored += [numpy_helper.from_array(np.asarray(v), name) for name, v in values.items()]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, size])
        for name in ("x0", f"x{layers}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], stored)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "chain.onnx")
    np.savez(folder / "x.npz", x0=random.standard_normal((2, size), np.float32))
    (folder / "chain.py").write_text(_CODE.format(size=size, layers=layers))
    names = {
        "MODEL": "chain.onnx", "DATA": "x.npz", "OUTPUT": "quantized.onnx",
        "CODE": "chain.py:Chain", "EXPORTED": "exported.onnx",
    }  # fmt: skip
    return {word: str(folder / name) for word, name in names.items()}


def _quantized(place: int) -> list[onnx.NodeProto]:
    """Returns a product whose operands and result are dequantised, as quantisers write it."""
    activation, made = ["xs", "xz"], helper.make_node
    x, w, y = f"x{place}", f"w{place}", f"x{place + 1}"
    return [
        made("QuantizeLinear", [x, *activation], [f"{x}_q"]),
        made("DequantizeLinear", [f"{x}_q", *activation], [f"{x}_d"]),
        made("DequantizeLinear", [w, "ws"], [f"{w}_d"]),
        made("MatMul", [f"{x}_d", f"{w}_d"], [f"{y}_f"]),
        made("QuantizeLinear", [f"{y}_f", *activation], [f"{y}_r"]),
        made("DequantizeLinear", [f"{y}_r", *activation], [y]),
    ]


def _stored(name: str, kind: np.dtype[Any], size: int, offset: int) -> onnx.TensorProto:
    data_type, length = helper.np_dtype_to_tensor_dtype(kind), kind.itemsize * size**2
    tensor = onnx.TensorProto(name=name, data_type=data_type, dims=[size, size])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "chain.bin"), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def peak(command: list[str]) -> Peak:
    """Runs a command to its end, and returns its peaks. Raises SystemExit if it fails."""
    began, total, allocated = time.monotonic(), 0, 0
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            now = [_sizes(each) for each in _tree(process.pid)]
            total = max(total, sum(size for size, _ in now))
            allocated = max(allocated, sum(size for _, size in now))
            time.sleep(_EVERY_S)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(command)} failed:\n{errors.read().decode()}")
    return Peak(total, allocated, time.monotonic() - began)


def _tree(root: int) -> list[int]:
    """Returns a process and all that descend from it."""
    found = [root]
    for process in found:  # grows
        for file in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += map(int, file.read_text().split())
            except OSError:  # the thread has ended
                continue
    return found


def _sizes(process: int) -> tuple[int, int]:
    """Returns the proportional set size of a process, and of its pages without a file; bytes."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:  # the process has ended
        return 0, 0
    sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines}
    return sizes["Pss:"], sizes["Pss_Anon:"]


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        raise SystemExit("Linux alone tells the memory of processes in proportion.")
    main()
