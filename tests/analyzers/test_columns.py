"""One table of columns, and all that follows from it."""

from pathlib import Path

import pandas as pd
import pytest

import tracer
from tests.analyzers import columns_page
from tests.graphs import integers, residual
from tracer.analyzers.grouping import grouped
from tracer.records.columns import BY_NAME, COLUMNS, SPECS
from tracer.records.trace import typed_table

BEFORE = (
    "node index op_type domain module source executor batch input_shapes output_shapes calls "
    "time_us time_us_p50 time_us_p95 time_us_min time_us_std time_us_ci95_low time_us_ci95_high "
    "time_share time_us_raw time_us_replayed kernels macs adds muls flops params param_bytes "
    "bytes_read bytes_written intensity gflops_per_s gbytes_per_s roof_fraction bound "
    "output_bytes peak_bytes arena_bytes acc_min acc_max final_min final_max bits_observed "
    "bits_guaranteed bits_datatype bits outputs overflow_outputs transient_outputs "
    "persistent_outputs saturation_events outputs_changed max_abs_error energy"
)


def test_columns_are_only_ever_added_at_the_end():
    assert " ".join(COLUMNS).startswith(BEFORE)
    assert len(BY_NAME) == len(SPECS)  # no name twice


@pytest.mark.parametrize("kind", ["count", "profile", "interpret"])
def test_every_table_has_every_column_with_its_type(kind):
    if kind == "count":
        nodes = tracer.count(residual()).nodes
    elif kind == "profile":
        nodes = tracer.profile(residual(), runs=3, threads=1).nodes
    else:
        nodes = tracer.interpret(integers(), accumulator=14).nodes
    assert tuple(nodes.columns) == COLUMNS
    assert {name: str(nodes[name].dtype) for name in COLUMNS} == {
        name: BY_NAME[name].dtype for name in COLUMNS
    }


def test_a_column_without_a_spec_is_refused():
    with pytest.raises(ValueError, match=r"no ColumnSpec .* names surprise"):
        typed_table(pd.DataFrame({"node": ["a"], "surprise": [1]}))


def test_groups_hold_what_the_specs_say_they_do():
    rows = [{"node": f"n{i}", "op_type": "Op", "index": i, "time_us": 1.0 + 2 * i,
             "time_share": 0.25 + 0.5 * i, "value_min": -i, "value_max": 3 + i, "nan_values": i,
             "gflops_per_s": 4.0 * i, "bound": ["memory", "compute"][i], "value_mean": 1.0}
            for i in range(2)]  # fmt: skip
    (row,) = grouped(typed_table(pd.DataFrame(rows)), "op").to_dict("records")
    assert (row["time_us"], row["time_share"], row["nan_values"]) == (4, 1, 1)
    assert (row["value_min"], row["value_max"]) == (-1, 4)
    assert row["gflops_per_s"] == 3  # 4 in three of the four microseconds
    assert row["bound"] == "compute"
    assert "value_mean" not in row
    folding = {spec.name for spec in SPECS if spec.kind == "stored" and spec.fold != "none"}
    assert folding <= set(row)


def test_the_page_has_the_columns_of_today():
    page = Path("docs/columns.md").read_text(encoding="utf-8")
    assert columns_page.updated(page) == page
    assert all(f"| `{name}` |" in page for name in COLUMNS)
