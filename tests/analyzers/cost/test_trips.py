"""Bodies of control flow count as often as they run."""

import onnx.parser
import pytest

from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import loading, shape_inference

LOOP = """
<ir_version: 9, opset_import: ["" : 17]>
main (float[2,2] x) => (float[2,2] y) <int64 trips = {10}, bool go = {1}, float[2,2] w = {1,2,3,4}>
{
  [loop] y = Loop (trips, go, x) <body = step (int64 i, bool on, float[2,2] state)
    => (bool on_out, float[2,2] next) {
      on_out = Identity (on)
      [product] next = MatMul (state, w)
    }>
}
"""

NESTED = """
<ir_version: 9, opset_import: ["" : 17]>
main (float[2] start, float[5,3,2] xs) => (float[2] end, float[5,2] ys) {
  [outer] end, ys = Scan <num_scan_inputs = 1, body = outer_step (float[2] s, float[3,2] x)
    => (float[2] s_out, float[2] y) {
      [inner] s_out, zs = Scan <num_scan_inputs = 1, body = inner_step (float[2] t, float[2] e)
        => (float[2] t_out, float[2] z) {
          [add] t_out = Add (t, e)
          z = Identity (t_out)
        }> (s, x)
      [negate] y = Neg (s_out)
    }> (start, xs)
}
"""

BRANCHES = """
<ir_version: 9, opset_import: ["" : 17]>
main (bool c, float[8] x) => (float[8] y) {
  [choice] y = If (c) <then_branch = a () => (float[8] p) { [yes] p = Exp (x) },
                       else_branch = b () => (float[8] q) { [no] q = Neg (x) }>
}
"""


def counted(text, calls=None):
    model = loading.from_proto(onnx.parser.parse_model(text))
    return cost(TypedModel(model, shape_inference.infer(model, {})), calls)


def test_a_loop_counts_its_constant_maximum_and_says_so():
    result = counted(LOOP)
    assert result.table.loc["loop.body/product", "macs"] == 10 * 2 * 2 * 2
    assert result.table.loc["loop.body/product", "bytes_written"] == 10 * 16
    assert result.notes == (
        "loop (Loop): the body is counted 10 times, the maximum; its condition may end it before",
    )


def test_parameters_do_not_multiply():
    result = counted(LOOP)
    assert result.table.loc["loop.body/product", "params"] == result.parameters[0] == 4


def test_a_loop_with_a_fed_maximum_counts_once_and_says_so():
    fed = LOOP.replace("(float[2,2] x)", "(float[2,2] x, int64 trips)", 1)
    result = counted(fed.replace("int64 trips = {10}, ", ""))
    assert result.table.loc["loop.body/product", "macs"] == 8
    assert result.notes == (
        "loop (Loop): the trip count is unknown ('trips' is computed or fed);"
        " the body is counted once",
    )


def test_scans_multiply_by_their_sequences():
    table = counted(NESTED).table
    assert table.loc["outer.body/inner.body/add", "adds"] == 5 * 3 * 2
    assert table.loc["outer.body/negate", "flops"] == 5 * 2
    assert table.loc[["outer", "outer.body/inner"], "flops"].to_list() == [0, 0]


def test_what_a_run_observed_goes_before_what_the_model_tells():
    result = counted(LOOP, {"loop": 1, "loop.body/product": 2.5})
    assert result.table.loc["loop.body/product", "macs"] == 20
    nested = counted(NESTED, {"outer.body/inner": 7})
    assert nested.table.loc["outer.body/inner.body/add", "adds"] == 7 * 3 * 2


def test_both_branches_count_unless_a_run_tells_which_ran():
    result = counted(BRANCHES)
    assert result.table["flops"].to_list() == [0, 8, 8]
    assert result.notes == ("choice (If): one of its branches runs; both are counted",)
    run = counted(BRANCHES, {"choice": 1, "choice.then_branch/yes": 1})
    assert run.table["flops"].to_list() == [0, 8, 0]
    assert run.notes == ()
    half = counted(BRANCHES, {"choice": 1, "choice.then_branch/yes": 0.25})
    assert half.table["flops"].to_list() == [0, 2, 6]


def test_nodes_that_a_run_did_not_see_ran_as_often_as_the_others_of_their_body():
    calls = {"loop.body/product": 4}
    text = LOOP.replace("on_out = Identity (on)", "on_out = Identity (on)  [more] z = Neg (state)")
    assert counted(text, calls).table.loc["loop.body/more", "flops"] == 4 * 4
    assert counted(text, calls).notes == ()


@pytest.mark.parametrize("batch", [1, 3])
def test_an_old_scan_runs_for_each_row_of_the_batch(batch):
    text = f"""
    <ir_version: 3, opset_import: ["" : 8]>
    main (float[{batch},2] start, float[{batch},4,2] xs) => (float[{batch},2] end) {{
      [scan] end = Scan <num_scan_inputs = 1, body = step (float[2] s, float[2] x)
        => (float[2] t) {{ [add] t = Add (s, x) }}> (, start, xs)
    }}
    """
    assert counted(text).table.loc["scan.body/add", "adds"] == batch * 4 * 2
