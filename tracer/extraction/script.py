"""Writes a case as a script that needs onnx, numpy and the runtime alone, and as a report."""

from __future__ import annotations

import base64
import platform
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import onnx.shape_inference

from tracer.extraction.cutting import Case
from tracer.extraction.faults import Finding
from tracer.extraction.runs import LEVELS, Side
from tracer.graph.model import node_protos
from tracer.records.environment import cpu_model
from tracer.support.types import Array

_MOST_LITERAL = 48
"""Elements of an array that is written out."""
_MOST_LINES = 60
_SECONDS = 120
"""Longest time of the script that is tried."""
_WIDTH = 96

_RUN = """
def run(level):
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, {threads}
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    made = model.SerializeToString()
    return ort.InferenceSession(made, options, providers=["CPUExecutionProvider"])

"""

_WRONG = """
seen = run("{level}").run(None, feeds)[{index}]
expected = {expected}
print("onnxruntime", ort.__version__, "seen", seen.ravel()[:4], "expected", expected.ravel()[:4])
if seen.shape != expected.shape:
    sys.exit(1)
far = np.abs(seen.astype(np.float64) - expected.astype(np.float64))
right = (far <= {allowed!r}) | (seen == expected) | ((seen != seen) & (expected != expected))
sys.exit(int(not right.all()))
"""

_DEATH = """
if len(sys.argv) > 1:
    run("{level}").run(None, feeds)
    sys.exit(0)
done = subprocess.run([sys.executable, __file__, "run"], check=False)
print(f"onnxruntime {{ort.__version__}}: the process ended with {{done.returncode}}")
sys.exit(int(done.returncode < 0))
"""

_ERROR = """
try:
    run("{level}").run(None, feeds)
except Exception as error:
    print(f"onnxruntime {{ort.__version__}}: {{error}}")
    sys.exit(1)
"""

_SLOWER = """
def us(session):
    times = []
    while len(times) < 3 or sum(times) < 0.05:
        began = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - began)
    return 1e6 * float(np.median(times))

ratios = [us(run("{level}")) / us(run("{other}")) for _ in range(9)]
print(f"onnxruntime {{ort.__version__}}: {level} ÷ {other} = {{np.median(ratios):.3f}}")
sys.exit(int(np.median(ratios) > {allowed!r}))
"""

_OVERFLOW = """
emulation = AccumulatorEmulation(tracer.graph.loading.open_model(model), as_policy("{accumulator}"))
tracer.Interpreter(model, wrap_kernel=emulation.wrap).run(None, feeds)
tallies = [sums.tally for sums in emulation.accumulations().values()]
over = sum(int(t.overflow(t.accumulator.bits).overflow_outputs.sum()) for t in tallies)
print(f"{{over}} sums overflow {accumulator}")
sys.exit(int(over > 0))
"""


def script(
    kind: str, case: Case, finding: Finding, sides: Sequence[Side], is_packed: bool = False
) -> str:
    """Returns the script, which exits 1 while the fault is there, and 0 when it is gone.

    Its model is ONNX's text, or packed, where the text would be too long.
    """
    level = LEVELS[sides[0].level]
    values: dict[str, Any] = {"level": level, "allowed": finding.allowed, "index": finding.index}
    modules = ["sys"]
    if kind == "wrong":
        body = _WRONG
        expected = _array(finding.expected, "")
        if not sides[1].is_interpreter and sides[0].folders == sides[1].folders:
            expected = f'run("{LEVELS[sides[1].level]}").run(None, feeds)[{finding.index}]'
        values["expected"] = expected
    elif kind == "crash":
        died = finding.error.startswith("SIG")
        body = _DEATH if died else _ERROR
        modules += ["subprocess"] if died else []
    elif kind == "slower":
        body, values["other"] = _SLOWER, LEVELS[sides[1].level]
        modules += ["time"]
    else:
        body, values["accumulator"] = _OVERFLOW, sides[0].accumulator
    text = f"{_model(case, is_packed)}\n"
    if case.weights:
        text += f"{_arrays('weights', case.weights, case)}\n{_STORE}"
    text += _arrays("feeds", case.feeds, case) + "\n"
    if kind != "overflow":
        text += _RUN.format(threads=sides[0].threads)
    text += body.format(**values)
    modules += [name for name in ("base64", "zlib") if f"{name}." in text]
    head = "".join(f"import {name}\n" for name in sorted(modules))
    head += "\nimport numpy as np\nimport onnx\nimport onnx.parser\n"
    if kind == "overflow":
        head += "import tracer\nimport tracer.graph.loading\n"
        head += "from tracer.accumulators.emulation import AccumulatorEmulation\n"
        head += "from tracer.accumulators.spec.policy import as_policy\n"
    else:
        head += "import onnxruntime as ort\n"
    told = f"Expected: {finding.expects}.\nSeen: {finding.sees}.\n\n"
    told += "Exits 1 while the fault is there, and 0 when it is gone.\n"
    text = f'"""{told}"""\n\n{head}\n{text}'
    is_long = text.count("\n") > _MOST_LINES and not is_packed
    return script(kind, case, finding, sides, is_packed=True) if is_long else text


_STORE = """for name, value in weights.items():
    model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
"""


def _model(case: Case, is_packed: bool) -> str:
    """Returns a line that makes the model: in ONNX's text, or packed where that loses something."""
    graph = onnx.ModelProto()
    graph.CopyFrom(case.proto)
    known = onnx.shape_inference.infer_shapes(case.model()).graph.output
    for value, typed in zip(graph.graph.output, known, strict=True):
        value.type.tensor_type.elem_type = typed.type.tensor_type.elem_type
    for node in node_protos(graph.graph):
        node.domain = node.domain  # as the parser sets it
    try:
        text = onnx.printer.to_text(graph)
        back = onnx.parser.parse_model(text)
        if not is_packed and back.graph == graph.graph and '"""' not in text and "\\" not in text:
            return f'model = onnx.parser.parse_model("""{text.strip()}""")'
    except (onnx.parser.ParseError, UnicodeError):
        pass
    packed = _packed(case.proto.SerializeToString())
    return f"model = onnx.ModelProto.FromString({packed})"


def _arrays(name: str, arrays: Any, case: Case) -> str:
    parts = [f"    {key!r}: {_array(arrays[key], case.formulas.get(key, ''))},\n" for key in arrays]
    return f"{name} = {{\n{''.join(parts)}}}"


def _array(value: Array, formula: str) -> str:
    """Returns a Python expression of an array."""
    if formula:
        return formula
    dtype = "bool" if value.dtype.kind == "b" else f"np.{value.dtype.name}"
    if value.dtype.kind in "fiub" and value.size <= _MOST_LITERAL:
        text = np.array2string(value, 10**6, separator=", ", floatmode="unique", threshold=10**6)
        numbers = " ".join(text.split()).replace("[ ", "[")
        numbers = numbers.replace("nan", "np.nan").replace("inf", "np.inf")
        shape = "" if value.size else f".reshape({value.shape})"
        return f"np.array({numbers}, {dtype}){shape}"
    if value.dtype.kind in "fiub":
        flat = f"np.frombuffer({_packed(value.tobytes())}, {dtype})"
        return f"{flat}.reshape({value.shape}).copy()"
    tensor = onnx.numpy_helper.from_array(value).SerializeToString()
    return f"onnx.numpy_helper.to_array(onnx.TensorProto.FromString({_packed(tensor)}))"


def _packed(data: bytes) -> str:
    text = base64.b85encode(zlib.compress(data, 9)).decode()
    return f"zlib.decompress(base64.b85decode({text!r}))"


def data_bytes(case: Case) -> int:
    """Returns the bytes of the arrays that have no formula."""
    return sum(
        int(getattr(value, "nbytes", 0))
        for name, value in case.arrays.items()
        if name not in case.formulas
    )


def exit_code(text: str, folders: Sequence[str]) -> int | None:
    """Returns the exit code of a script in a new process; None where it does not end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fault.py"
        path.write_text(text, "utf-8")
        begin = f"import sys; sys.path[:0] = {list(folders)!r}; sys.argv = [{str(path)!r}]; "
        begin += "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
        command = [sys.executable, "-c", begin] if folders else [sys.executable, str(path)]
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter and script
                command, capture_output=True, check=False, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            return None
        return done.returncode


def report(title: str, finding: Finding, sides: Sequence[Side], text: str) -> str:
    """Returns a page for an issue, in Markdown."""
    rows = [
        ("sides", ", ".join(side.label for side in sides)),
        ("onnx", onnx.__version__), ("numpy", np.__version__),
        ("Python", platform.python_version()), ("system", platform.platform()),
        ("processor", cpu_model()),
    ]  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return (
        f"# {title}\n\nExpected: {finding.expects}.\n\nSeen: {finding.sees}.\n\n"
        f"| | |\n|---|---|\n{table}\n\n## Script\n\n"
        "It exits with 1 while the fault is there, and with 0 when it is gone.\n\n"
        f"```python\n{text.rstrip()}\n```\n"
    )
