"""The drill of CONTRIBUTING: a column of a result is a field of its record."""

import csv
import io

import pytest

RECORD = "tracer/records/transformed.py"
AFTER = "\n\n\n@dataclass(frozen=True, slots=True)\nclass Plan:"
ADDED = '\n    trial: int = field(default=7, metadata=as_column("trial", 1, "whole"))'


@pytest.mark.nightly
def test_a_column_of_tune_takes_one_field(copy, repository):
    copy.edit(RECORD, AFTER, ADDED + AFTER)
    model = str(repository / "models/lenet/lenet.onnx")
    copy.tracer("tune", model, "--threads", "1", "--max-seconds", "60", "-o", "t.csv", "-o", "t.md")
    rows = list(csv.DictReader(io.StringIO((copy.root / "t.csv").read_text())))
    assert rows and {row["trial"] for row in rows} == {"7"}
    assert "| trial |" in (copy.root / "t.md").read_text()
