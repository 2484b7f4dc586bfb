"""Writes docs/notebook.ipynb, run from top to bottom: `python -m tests.docs.notebook`.

Cells are below. What a cell's last line returns is shown as Jupyter shows it: its HTML or its text.
"""

import ast
import contextlib
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

from tests.docs.examples import ROOT, folder_of_examples

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
    "## Which module takes the time?\n\nEverything that pandas can do with a table works on "
    "`trace.nodes`.",
    """
stages = trace.nodes.assign(stage=trace.nodes["module"].str.split(".").str[0])
stages.groupby("stage")[["time_us", "macs", "params"]].sum().sort_values("time_us").round(1)
""",
    "## Is another setting faster?\n\nBoth sides take turns, so a drift of the machine affects "
    "both. `ratio` below 1 is faster, and `significant` says whether that is more than noise.",
    """
sides = ["demo/lenet.onnx@ort:none", "demo/lenet.onnx"]
comparison = tracer.compare(sides, settings=tracer.SideSettings(threads=1))
comparison.totals[["side", "model", "time_us", "ratio", "ratio_low", "ratio_high", "significant"]]
""",
    "## How many bits do the sums need?\n\nQuantise, then count what overflows in accumulators of "
    "16 bits.",
    """
tracer.quantize("demo/lenet.onnx", calibrate="digits").save("lenet.int8.onnx", force=True)
tracer.interpret("lenet.int8.onnx", accumulator=16, batch=60)
""",
    "## Keep it\n\n`trace.show()` shows the report in the notebook; `.save` writes it, and any "
    "other format.",
    """
trace.save("resnet20.html", force=True)
trace.save("resnet20.trace", force=True)
tracer.load("resnet20.trace").wall_us
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
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_()
    return [v4.new_output("execute_result", data, execution_count=1)]


if __name__ == "__main__":
    os.environ["COLUMNS"] = "110"
    nbformat.write(written(), NOTEBOOK)
