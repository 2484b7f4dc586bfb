"""The drill of CONTRIBUTING: a column is its ColumnSpec and the analyzer that fills it."""

import csv
import io

import pytest

MODEL = "models/lenet/lenet.onnx"


@pytest.mark.nightly
def test_a_column_takes_its_spec_and_the_analyzer_that_fills_it(copy, repository):
    model = str(repository / MODEL)
    copy.edit(
        "tracer/records/columns.py",
        "SPECS = (\n",
        "SPECS = (\n"
        '    _work("half_flops", "half flops", 2, "half of the flops", "sum", unit="flop"),\n',
    )
    copy.edit(
        "analyzers/table.py",
        "    return typed_table(table)\n",
        '    table["half_flops"] = table["flops"] // 2\n    return typed_table(table)\n',
    )
    table = list(csv.DictReader(io.StringIO(copy.tracer("count", model, "--csv"))))
    assert all(int(row["half_flops"]) == int(row["flops"]) // 2 for row in table)
    folded = list(csv.DictReader(io.StringIO(copy.tracer("count", model, "--csv", "--by", "op"))))
    assert sum(int(row["half_flops"]) for row in folded) == sum(
        int(row["half_flops"]) for row in table
    )
    assert "half flops" in copy.tracer("count", model)  # a narrow rank: the terminal shows it


def test_a_column_without_a_spec_is_an_error(copy, repository):
    copy.edit(
        "analyzers/table.py",
        "    return typed_table(table)\n",
        '    table["half_flops"] = table["flops"] // 2\n    return typed_table(table)\n',
    )
    result = copy.run("-m", "tracer", "count", str(repository / MODEL))
    assert result.returncode == 70
    assert "half_flops" in result.stderr
