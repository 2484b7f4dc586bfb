"""The drill of CONTRIBUTING: an output format is a module in `analyzers/views/file_formats`."""

import json

MODEL = "models/lenet/lenet.onnx"
FORMAT = '''
"""`.rows`: the names of the nodes, one a line."""

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format


def render(table: pd.DataFrame, options: ViewOptions) -> bytes:
    """The first column of a table."""
    return "\\n".join(table.iloc[:, 0]).encode()


FORMATS = (Format("rows", "table", render),)
'''


def test_an_output_format_takes_one_module_and_no_edit(copy, repository):
    copy.add("analyzers/views/file_formats/rows.py", FORMAT)
    model = str(repository / MODEL)
    copy.tracer("count", model, "-o", "lenet.rows", "-o", "lenet.json")
    nodes = json.loads((copy.root / "lenet.json").read_text())["runs"][0]["nodes"]
    names = [node["node"] for node in nodes]
    assert (copy.root / "lenet.rows").read_text().split("\n") == names
    assert copy.tracer("count", model, "-o", "rows:-").split("\n") == names
    copy.python(f"import tracer; tracer.count({model!r}).save('saved.rows')")
    assert (copy.root / "saved.rows").read_text().split("\n") == names
