"""The drill of CONTRIBUTING: a column of a result is a field of its record."""

import csv
import io

import pytest

RECORD = "tracer/records/transformed.py"
AFTER = "\n\n\n@dataclass(frozen=True, slots=True)\nclass Plan:"
ADDED = '\n    trial: int = field(default=7, metadata=shown("trial", 1))'


@pytest.mark.nightly
def test_a_column_of_tune_takes_one_field(copy, repository):
    copy.edit(RECORD, AFTER, ADDED + AFTER)
    model = str(repository / "models/lenet/lenet.onnx")
    command = ("tune", model, "--threads", "1", "--max-seconds", "60")
    rows = list(csv.DictReader(io.StringIO(copy.tracer(*command, "--csv"))))
    assert rows and {row["trial"] for row in rows} == {"7"}
    assert "trial" in copy.tracer(*command)
