"""The command line as a user meets it: output, exit codes, and nothing half-written."""

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from threadpoolctl import threadpool_info

import tracer.cli
from tests.examples import at_night
from tests.graphs import residual
from tracer.interpreter.compiled_code import loaded


@pytest.fixture
def model(tmp_path):
    onnx.save(residual(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def run(capfd, *args):
    """Exit code, stdout and stderr of a command."""
    code = tracer.cli.main([str(arg) for arg in args])
    out = capfd.readouterr()
    return code, out.out, out.err


FAST = ("--runs", "3", "--warmup", "1", "--threads", "1")


def test_profile_prints_a_table_and_writes_every_format(model, capfd, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pyarrow")
    names = ["r.trace", "r.json", "r.csv", "r.parquet", "r.md", "r.png", "r.svg"]
    outputs = [part for name in names for part in ("-o", tmp_path / name)]
    code, out, err = run(capfd, "profile", model, *FAST, *outputs)
    assert code == 0
    assert "Conv" in out
    assert "% of wall" in out
    for name in names:
        assert (tmp_path / name).stat().st_size > 100
        assert f"wrote {tmp_path / name}" in err


@pytest.mark.nightly
def test_report_renders_a_saved_trace_as_the_profile_did(model, capfd, tmp_path):
    trace = tmp_path / "r.trace"
    _, out, _ = run(capfd, "profile", model, *FAST, "-o", trace)
    page, box = re.split(r"\n[╭─]", run(capfd, "report", trace)[1], maxsplit=1)
    assert page == re.split(r"\n[╭─]", out)[0]
    assert "tracer report" in box
    code, table, _ = run(capfd, "report", trace, "--by", "op", "--csv")
    assert code == 0
    assert table.splitlines()[0].startswith("executor,batch,op_type")


def test_json_is_alone_on_stdout(model, capfd):
    for option in (["--json"], ["-o", "-"], ["-o", "json:-"]):
        code, out, _ = run(capfd, "profile", model, *FAST, *option, "--batch", "1,2")
        assert code == 0
        assert [r["batch"] for r in json.loads(out)["runs"]] == [1, 2]


def test_count_and_env_run_nothing(model, capfd):
    code, out, _ = run(capfd, "count", model, "--by", "op", "--json")
    assert code == 0
    assert json.loads(out)["runs"][0]["executor"] is None
    code, out, _ = run(capfd, "env", "--json")
    assert json.loads(out)["packages"]["onnx"] == onnx.__version__
    assert run(capfd, "env")[1].count("\n") > 5


def test_env_lists_what_pip_lists_and_names_the_distribution(capfd):
    shown = json.loads(run(capfd, "env", "--packages", "--json")[1])
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"],
        capture_output=True, check=True,
    )  # fmt: skip
    listed = {package["name"]: package["version"] for package in json.loads(pip.stdout)}
    assert listed.items() <= shown["packages"].items()
    assert shown["packages"].keys() > json.loads(run(capfd, "env", "--json")[1])["packages"].keys()
    release = subprocess.run(
        ["sh", "-c", ". /etc/os-release && echo $PRETTY_NAME"], capture_output=True, text=True
    )
    assert shown["distribution"] == (release.stdout.strip() or None)
    assert release.stdout.strip() in run(capfd, "env")[1]


def test_env_tells_what_narrow_sums_use_and_where_their_code_is(capfd):
    shown = json.loads(run(capfd, "env", "--json", "--with-paths")[1])
    has_range = "avx512dq" in shown["cpu_flags"]  # from the operating system
    compiled = shown["compiled"]
    assert (compiled["instructions"] == "AVX-512, range") == has_range
    assert compiled["threads"] == max(
        pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"
    )
    tiles = loaded("tile_code")
    tiles.task(tiles.NOTHING, tiles.FLOATS, np.dtype(np.float32), 32, 2, 1)
    assert any(Path(compiled["folder"]).glob("tracer.interpreter.kernels-*/*/*.o"))
    assert compiled["folder"] in run(capfd, "env", "--csv")[1]


def test_a_model_without_nodes_has_no_work(tmp_path, capfd):
    text = '<ir_version: 8, opset_import: ["" : 17]> net (float[2] x) => (float[2] x) { }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    code, out, _ = run(capfd, "count", tmp_path / "m.onnx", "--max-macs", 0, "--json")
    assert (code, json.loads(out)["runs"][0]["nodes"]) == (0, [])


def test_env_counts_equal_gpus_and_names_the_version_of_cuda(capfd, tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"  # answers as the driver's own does
    tool.write_text("""#!/bin/sh
case "$1" in
  --query-gpu=*) printf 'NVIDIA H100 PCIe, 81559 MiB\\nNVIDIA H100 PCIe, 81559 MiB\\n' ;;
  *) echo '| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4     |' ;;
esac
""")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    out = run(capfd, "env")[1]
    assert "2 x NVIDIA H100 PCIe, 81559 MiB" in out
    assert re.search(r"CUDA +12\.4", out)
    assert json.loads(run(capfd, "env", "--json")[1])["gpus"] == ["NVIDIA H100 PCIe, 81559 MiB"] * 2


def test_env_writes_the_environment_in_every_format(capfd, tmp_path):
    names = ["env.json", "env.md", "env.csv"]
    code, out, _ = run(capfd, "env", *(part for name in names for part in ("-o", tmp_path / name)))
    assert code == 0 and onnx.__version__ in out
    document = json.loads((tmp_path / "env.json").read_text())
    assert document["packages"]["onnx"] == onnx.__version__
    assert f"| onnx | {onnx.__version__} |" in (tmp_path / "env.md").read_text()
    assert f"onnx,{onnx.__version__}" in (tmp_path / "env.csv").read_text().splitlines()
    assert run(capfd, "env", "-o", tmp_path / "env.png")[0] == 2


def test_report_checks_formats_of_the_result_it_reads(model, capfd, tmp_path):
    assert run(capfd, "count", model, "-o", tmp_path / "r.trace")[0] == 0
    target = tmp_path / "again.json"
    assert run(capfd, "report", tmp_path / "r.trace", "-o", target)[0] == 0
    code, _, err = run(capfd, "report", tmp_path / "r.trace", "-o", target)
    assert code == 3 and "--force" in err


def test_an_existing_file_is_kept_without_force(model, capfd, tmp_path):
    target = tmp_path / "r.csv"
    target.write_text("precious")
    code, _, err = run(capfd, "count", model, "-o", target)
    assert (code, target.read_text()) == (3, "precious")
    assert "--force" in err
    assert run(capfd, "count", model, "-o", target, "--force")[0] == 0
    assert target.read_text().startswith("node,")


BAD = {
    "no model": (["profile", "nowhere.onnx"], 3, "nowhere.onnx: no such file"),
    "folder without a model": (["profile", "."], 3, "holds no .onnx file"),
    "unknown dimension": (["profile", "{m}", "--dim", "M=3"], 3, "no open dimension 'M'"),
    "inputs of a wrong shape": (["profile", "{m}", "--inputs", "x.npz"], 3, "fixed at 16, not 15"),
    "no inputs file": (["profile", "{m}", "--inputs", "y.npz"], 3, "y.npz: no such inputs"),
    "no output folder": (["profile", "{m}", "-o", "no/r.csv"], 3, "does not exist"),
    "no such format": (["profile", "{m}", "-o", "r.xls"], 2, "names no format"),
    "two on stdout": (["count", "{m}", "--json", "--csv"], 2, "two outputs for stdout"),
    "no provider": (["profile", "{m}", "--provider", "abacus"], 2, "no provider 'abacus'"),
    "no trace": (["report", "r.trace"], 3, "r.trace: no such trace. Make one with: tracer profile"),
    "a model to show": (["report", "{m}"], 3, "is a model, which tracer report does not"),
    "bad number": (["profile", "{m}", "--runs", "0"], 2, "0 is not in the range"),
    "no number": (["profile", "{m}", "--max-memory", "9G"], 2, "'9G' is not a valid whole number"),
    "unit": (["profile", "{m}", "--max-seconds", "5s"], 2, "not a valid number of seconds"),
    "no sum": (["reveal", "f.py:dot", "--terms", "1"], 2, "1 is not in the range 2<=x<=4096"),
    "negative seed": (["profile", "{m}", "--seed", "-1"], 2, "-1 is not in the range"),
    "bad batch": (["profile", "{m}", "--batch", "1,x"], 2, "not a list of integers"),
    "bad dim": (["profile", "{m}", "--dim", "M"], 2, "not of the form name=value"),
    "a size that is no digit": (
        ["count", "{m}", "--dim", "N=²"],
        2,
        "a size is a whole number from 0",
    ),
    "a size too large": (["count", "{m}", "--dim", "N=" + "9" * 20], 2, "at most 2,147,483,647"),
    "a size of many digits": (["count", "{m}", "--dim", "N=" + "9" * 5000], 2, "at most"),
    "a count's batch too large": (["count", "{m}", "--batch", "9" * 20], 2, "not in the range"),
    "a batch too large": (["profile", "{m}", "--batch", "9" * 20], 2, "from 1 to 2,147,483,647"),
    "a batch no machine holds": (["profile", "{m}", "--batch", "2147483647"], 4, "exceeds"),
    "a batch twice": (["profile", "{m}", "--batch", "2,2"], 2, "names a number twice"),
    "a long name": (["count", "x" * 300], 3, "File name too long"),
    "a long name of a trace": (["report", "x" * 300], 3, "File name too long"),
    "a long name of inputs": (["profile", "{m}", "--inputs", "x" * 300], 3, "File name too long"),
    "a long name of an output": (["count", "{m}", "-o", "x" * 300 + ".csv"], 3, "too long"),
    "no name": (["profile", ""], 2, "the path is empty"),
    "no name of inputs": (["profile", "{m}", "--inputs", ""], 2, "the path is empty"),
    "no name of a trace": (["report", ""], 2, "the path is empty"),
    "one file twice": (["count", "{m}", "-o", "a.json", "-o", "./a.json"], 2, "two outputs for"),
    "no command": (["nonsense"], 2, "No such command 'nonsense'"),
}


@pytest.mark.parametrize(("args", "expected", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_message_and_nothing_is_written(
    args, expected, message, model, capfd, tmp_path, monkeypatch
):
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    np.savez("x.npz", x=np.ones((1, 3, 16, 15), np.float32))
    code, out, err = run(capfd, *(arg.format(m=model) for arg in args))
    assert (code, out) == (expected, "")
    assert message in err
    assert err.count("\n") == 1
    assert [p.name for p in folder.iterdir()] == ["x.npz"]


def test_an_unwritable_output_is_refused_before_the_work(model, capfd):
    code, out, err = run(capfd, "profile", model, "-o", "/proc/r.csv")
    assert (code, out) == (3, "")
    assert "cannot be written to" in err


def test_an_error_on_a_file_of_weights_names_the_option_that_quantize_has(model, capfd, tmp_path):
    """In quantize, --weights is the bits of weights alone."""
    (tmp_path / "w.pt").touch()
    asked = (
        "--calibrate",
        "digits",
        "--weights-file",
        tmp_path / "w.pt",
        "-o",
        tmp_path / "q.onnx",
    )
    code, _, err = run(capfd, "quantize", model, *asked)
    assert code == 2 and "(in quantize --weights-file)" in err


def test_debug_shows_where_an_error_came_from(model):
    with pytest.raises(tracer.errors.InputError):
        tracer.cli.main(["report", "nowhere.trace", "--debug"])


@pytest.mark.parametrize("kind", [ZeroDivisionError, GeneratorExit, BaseException])
def test_an_error_of_ours_is_said_to_be_one(kind, model, capfd, monkeypatch):
    def broken(*args, **kwargs):
        raise kind("oops")

    monkeypatch.setattr(importlib.import_module("tracer.api.count"), "count", broken)
    code, _, err = run(capfd, "count", model)
    assert code == 70
    assert f"internal error: {kind.__name__}: oops" in err


def test_an_interrupt_is_130_and_leaves_nothing(model, capfd, monkeypatch, tmp_path):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("tracer.api.profile"), "profile", interrupted)
    code, _, err = run(capfd, "profile", model, "-o", tmp_path / "r.csv")
    assert code == 130
    assert "interrupted" in err
    assert not (tmp_path / "r.csv").exists()


def shell(command, model):
    """A command line run by bash, where $t is tracer and $m the model."""
    env = {**os.environ, "t": f"{sys.executable} -m tracer", "m": str(model), "COLUMNS": "100"}
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env)


@pytest.mark.nightly
def test_a_pipe_is_as_wide_as_its_content_unless_columns_sets_a_width(model, tmp_path):
    proto = onnx.load(model)
    proto.graph.node[0].name = "/encoder/layers.0/" + "self_attention/" * 11 + "output/Conv"
    onnx.save(proto, tmp_path / "long.onnx")
    whole, cut = (
        shell(f"env {setting} $t count $m", tmp_path / "long.onnx").stdout
        for setting in ("-u COLUMNS", "COLUMNS=80")
    )
    assert proto.graph.node[0].name in whole
    assert proto.graph.node[0].name not in cut
    assert max(map(len, cut.splitlines())) <= 80
    assert all(header in whole for header in ("MACs", "params"))
    assert "MACs" in cut


@pytest.mark.nightly
def test_a_terminal_keeps_its_own_width(model):
    code = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))"
    command = f"env -u COLUMNS {sys.executable} -c '{code}' bash -c 'stty cols 60; $t count $m'"
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shell(command, model).stdout).splitlines()
    assert any("MACs" in line for line in lines)
    assert max(map(len, lines)) == 60


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["", "--csv", "--json"])
def test_a_reader_that_goes_away_is_no_error(kind, model):
    # The reader has gone before the first byte comes, whatever a pipe holds.
    done = shell(f"($t count $m {kind}; echo $? >&2) | exec 0<&-", model)
    assert done.stderr == "0\n"


@pytest.mark.one_in(2)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize(
    "kind",
    at_night(["count $m", "count $m --csv", "env", "env --json"], but=["count $m", "env --json"]),
)
def test_a_full_disk_behind_stdout_is_one_line(kind, model):
    done = shell(f"$t {kind} > /dev/full", model)
    assert done.returncode == 3
    assert done.stderr == "tracer: error: stdout: cannot be written (No space left on device)\n"


@pytest.mark.nightly
def test_a_closed_stdout_is_refused_unless_a_file_is_named(model, tmp_path):
    for kind in ("", "--json"):
        done = shell(f"$t count $m {kind} >&-", model)
        assert (done.returncode, done.stderr.count("\n")) == (3, 1)
        assert "stdout is closed" in done.stderr
    assert shell(f"$t count $m -o {tmp_path}/r.csv >&-", model).returncode == 0
    assert (tmp_path / "r.csv").read_text().startswith("node,")


def test_a_stdout_in_memory_receives_the_page(model):
    with contextlib.redirect_stdout(io.StringIO()) as page:
        assert tracer.cli.main(["count", str(model)]) == 0
    assert str(model.name) in page.getvalue()


def test_sigterm_ends_as_an_interrupt_does_and_leaves_nothing(model, tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    command = [sys.executable, "-m", "tracer", "profile", str(model), "--min-time", "300"]
    env = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        end = time.monotonic() + 60
        while (
            not any(folder.glob("tracer-*")) and process.poll() is None and time.monotonic() < end
        ):
            time.sleep(0.01)
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert (err, process.returncode) == ("tracer: terminated\n", 143)
    assert not any(folder.glob("tracer-*"))


@pytest.mark.nightly
def test_modules_of_a_saved_trace_are_shown_at_any_depth(capfd, tmp_path):
    from models import families

    transformer, trace = families.shipped("transformer", "torch"), tmp_path / "t.trace"
    assert run(capfd, "profile", transformer, *FAST, "-o", trace)[0] == 0
    wholes = []
    for depth in (1, 2, 9):
        code, out, _ = run(capfd, "report", trace, "--by", "module", "--depth", depth, "--json")
        rows = json.loads(out)["runs"][0]["nodes"]
        known = {row["module"] for row in rows} - {"(runtime)"}
        assert code == 0 and ("layers" in known) == (depth == 1)
        assert max(name.count(".") for name in known) == min(depth - 1, 3)
        wholes.append(sum(row["time_us"] or 0 for row in rows))
    assert wholes == pytest.approx([wholes[0]] * 3)


@pytest.mark.parametrize("command", ["profile", "count", "report"])
def test_a_depth_without_modules_is_one_line(command, model, capfd):
    for by in ((), ("--by", "source")):
        file = "run.trace" if command == "report" else model
        code, out, err = run(capfd, command, file, *by, "--depth", "2")
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "Give --by module with --depth" in err


def test_a_model_that_knows_no_source_says_what_does(model, capfd):
    code, out, _ = run(capfd, "count", model, "--by", "source")
    assert code == 0
    assert "(no source)" in out and "no node has a source" in out


@pytest.mark.parametrize("name", sorted(tracer.cli.tracer.list_commands(None)))
def test_an_option_of_a_command_has_one_meaning(name):
    command = tracer.cli.tracer.get_command(None, name)
    spellings = [text for param in command.params for text in (*param.opts, *param.secondary_opts)]
    names = [param.name for param in command.params]
    assert len(set(spellings)) == len(spellings) and len(set(names)) == len(names)
