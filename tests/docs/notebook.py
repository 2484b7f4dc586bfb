"""Writes docs/notebook.ipynb, run from top to bottom: `python -m tests.docs.notebook`.

Cells are below. What a cell's last line returns is shown as Jupyter shows it: its picture, its
HTML or its text.
"""

import ast
import base64
import contextlib
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

from tests.docs.examples import ROOT, folder_of_examples

_RELEASE = re.compile(r"Linux [\w.-]+")
"""What a page says of the system; its release says nothing to readers."""
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
CELLS = (
    "# tracer in a notebook\n\n"
    "`tracer demo` writes the models of this notebook to `demo/`. A result on the last line of a "
    "cell is a table; `.nodes` is a DataFrame.",
    """
import tracer

trace = tracer.profile("demo/resnet20.onnx", threads=1)
trace
""",
    "## Which rows take the time?\n\nA row is a kernel: the nodes that onnxruntime fused share it.",
    """
trace.top(5)
""",
    'The same as a chart; `trace.plot("roofline")` is another.',
    """
trace.plot()
""",
    "Everything that pandas can do with a table works on `trace.nodes`.",
    """
stages = trace.nodes.assign(stage=trace.nodes["module"].str.split(".").str[0])
stages.groupby("stage")[["time_us", "macs", "params"]].sum().sort_values("time_us").round(1)
""",
    "## Is another model faster?\n\nBoth sides take turns, so a drift of the machine affects both. "
    "A side may also be a trace: `trace.compare(other)`.",
    """
sides = ["demo/lenet.onnx", "demo/lenet.int8.onnx"]
tracer.compare(sides, settings=tracer.SideSettings(threads=1))
""",
    "## How many bits do the sums need?",
    """
few = tracer.WhatIfOptions(limit=200)
tracer.what_if("demo/lenet.int8.onnx", "16:24", "digits", options=few)
""",
    "Fewer: `narrow` changes the model so that no input can overflow 16 bits.",
    """
narrowed = tracer.narrow("demo/lenet.int8.onnx", 16, "digits", output="acc16.onnx")
narrowed
""",
    "## Keep it\n\n`trace.show()` shows the report in the notebook; `.save` writes it, and any "
    "other format. What goes wrong is an error of `tracer`.",
    """
trace.save("resnet20.html", force=True)
try:
    tracer.load("resnet21.trace")
except tracer.TracerError as error:
    message = str(error)
message
""",
)


def written() -> Any:
    """The notebook, with what its cells show."""
    names: dict[str, Any] = {}
    book = v4.new_notebook(metadata={"language_info": {"name": "python"}})
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder_of_examples(Path(folder))),
    ):
        for number, cell in enumerate(CELLS):
            if number % 2 == 0:
                book.cells.append(v4.new_markdown_cell(cell, id=f"cell-{number}"))
            else:
                outputs = _outputs(cell.strip(), names)
                book.cells.append(v4.new_code_cell(
                    cell.strip(), id=f"cell-{number}", execution_count=number // 2 + 1,
                    outputs=outputs))  # fmt: skip
    return book


def _outputs(code: str, names: dict[str, Any]) -> list[Any]:
    *body, last = ast.parse(code).body
    assert isinstance(last, ast.Expr), code
    with contextlib.redirect_stderr(io.StringIO()):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    data = {"text/plain": repr(value)}
    if hasattr(value, "_repr_png_"):
        data["image/png"] = base64.b64encode(value._repr_png_()).decode()
    elif hasattr(value, "_repr_html_"):
        data["text/html"] = _RELEASE.sub("Linux", value._repr_html_())
    return [v4.new_output("execute_result", data, execution_count=1)]


if __name__ == "__main__":
    os.environ["COLUMNS"] = "110"
    nbformat.write(written(), NOTEBOOK)
