"""Writes a case as a script that needs onnx, numpy and the runtime alone, and as a report."""

import base64
import os
import platform
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import onnx.shape_inference

from tracer.extraction.cutting import Case
from tracer.extraction.faults import LEVELS, Finding, Side
from tracer.graph.model import node_protos
from tracer.records.environment import cpu_model
from tracer.support.types import Array
from tracer.text import line

_MOST_LITERAL = 48
"""Elements of an array that is written out."""
_MOST_LINES = 60
_WITHIN_STRING = {ord('"'): "'", ord("\\"): "/"}

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

_CRASH = """
if len(sys.argv) > 1:
    run("{level}").run(None, feeds)
    sys.exit(0)
done = subprocess.run([sys.executable, __file__, "run"], stderr=subprocess.PIPE)
print("onnxruntime", ort.__version__, "ended with", done.returncode, done.stderr.decode()[-500:])
sys.exit(int({fails}))
"""

_SLOWER = """
def us(session):
    times = []
    while len(times) < 3 or sum(times) < 0.05:
        began = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - began)
    return 1e6 * float(np.median(times))

ratios = [us(run("{level}")) / {other} for _ in range(9)]
print("onnxruntime", ort.__version__, "takes so many times as long:", np.median(ratios))
sys.exit(int(np.median(ratios) > {allowed!r}))
"""

_OVERFLOW = """
overflows = count_overflows(model, "{accumulator}", feeds)
print(f"sums that overflow accumulator {accumulator}: {{overflows}}")
sys.exit(int(overflows > 0))
"""


def script(
    kind: str, case: Case, finding: Finding, sides: Sequence[Side], is_packed: bool = False
) -> str:
    """Returns the script; its model is ONNX's text, or packed, where that would be too long."""
    level = LEVELS[sides[0].level]
    values: dict[str, Any] = {"level": level, "allowed": finding.allowed, "index": finding.index}
    modules = ["sys"]
    is_one = not sides[-1].is_interpreter and sides[0].folders == sides[-1].folders
    if kind == "wrong":
        body = _WRONG
        expected = _array(finding.expected)
        if is_one:
            expected = f'run("{LEVELS[sides[1].level]}").run(None, feeds)[{finding.index}]'
        values["expected"] = expected
    elif kind == "crash":
        values["fails"] = f"done.returncode {'<' if finding.error.startswith('SIG') else '>'} 0"
        body, modules = _CRASH, [*modules, "subprocess"]
    elif kind == "slower":
        body, modules = _SLOWER, [*modules, "time"]
        values["other"] = f'us(run("{LEVELS[sides[1].level]}"))' if is_one else finding.expected
    else:
        body, values["accumulator"] = _OVERFLOW, sides[0].accumulator
    text = f"{_model(case, is_packed)}\n"
    if case.weights:
        text += _arrays("weights", case.weights, case) + "for name, value in weights.items():\n"
        text += "    model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))\n"
    text += _arrays("feeds", case.feeds, case)
    if kind != "overflow":
        text += _RUN.format(threads=sides[0].threads)
    text += body.format(**values)
    modules += [name for name in ("base64", "zlib") if f"{name}." in text]
    head = "".join(f"import {name}\n" for name in sorted(modules))
    head += "\nimport numpy as np\nimport onnx\nimport onnx.parser\n"
    interpreting = "from tracer.extraction.faults import count_overflows\n"
    head += interpreting if kind == "overflow" else "import onnxruntime as ort\n"
    # names of a model may hold whatever ends a string
    seen = (line(each).translate(_WITHIN_STRING) for each in (finding.expects, finding.sees))
    told = "Expected: {}.\nSeen: {}.\n\n".format(*seen)
    text = f'"""{told}Exits 1 while the fault is there, 0 when it is gone.\n"""\n\n{head}\n{text}'
    is_long = text.count("\n") > _MOST_LINES and not is_packed
    return script(kind, case, finding, sides, is_packed=True) if is_long else text


def _model(case: Case, is_packed: bool) -> str:
    """Returns a line that makes the model: in ONNX's text, or packed where that loses something."""
    graph = deepcopy(case.proto)
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
    parts = [f"    {n!r}: {case.formulas.get(n) or _array(v)},\n" for n, v in arrays.items()]
    return f"{name} = {{\n{''.join(parts)}}}\n"


def _array(value: Array) -> str:
    """Returns a Python expression of an array."""
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
    inline = (value for name, value in case.arrays.items() if name not in case.formulas)
    return sum(int(getattr(value, "nbytes", 0)) for value in inline)


def exit_code(text: str, folders: Sequence[str]) -> int:
    """Returns the exit code of a script in a new process, which imports from `folders` first."""
    around = {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, *sys.path])}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fault.py"
        path.write_text(text, "utf-8")
        command = [sys.executable, str(path)]
        done = subprocess.run(command, capture_output=True, check=False, env=around)  # noqa: S603
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
    told = f"Expected: {finding.expects}.\n\nSeen: {finding.sees}."
    return f"# {title}\n\n{told}\n\n| | |\n|---|---|\n{table}\n\n```python\n{text}```\n"
