"""How commands end on files of others that are broken, and what they leave then."""

import gzip
import io
import os
import resource
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import tracer.cli
from tests.examples import at_night
from tests.graphs import parse
from tracer.errors import UsageError
from tracer.inputs import feedset
from tracer.support import files

LENET = str(Path("models/lenet/lenet.onnx").resolve())
INT8 = str(Path("models/lenet/lenet.int8.onnx").resolve())


def main(capfd, *arguments):
    """The exit code of a command, and its one line of error, if it failed."""
    code = tracer.cli.main([str(each) for each in arguments])
    lines = [line for line in capfd.readouterr().err.splitlines() if ": error: " in line]
    assert len(lines) == (code not in (0, 1)), lines
    return code, "".join(lines)


@pytest.mark.parametrize(
    "arguments, told",
    [
        (("count", LENET, "--run", "--inputs", "x.npz"), "--run has random values"),
        (("tune", LENET, "--apply", "spinning", "--try", "threads"), "--try is for a search"),
        (("tune", LENET, "--apply", "spinning", "--allow", "float16"), "--allow is for a search"),
        (("interpret", LENET, "--rtol", "1"), "--rtol says how close"),
        (("interpret", LENET, "--check-exact", "--seed", "3"), "--seed is for a run"),
        (("quantize", LENET, "--weights", "4", "-o", "q.onnx", "--limit", "4"), "--limit is for"),
        (("quantize", LENET, "--weights", "4", "-o", "q.onnx", "--batch", "4"), "--batch is for"),
        (("profile", LENET, "--data-dir", "x"), "--data-dir is for a data set"),
        (("interpret", LENET, "--data-dir", "x"), "--data-dir is for a data set"),
        (("profile", LENET, "--data", "digits", "--seed", "3"), "--seed is for random inputs"),
        (("profile", LENET, "--inputs", "x.npz", "--seed", "3"), "--seed is for random inputs"),
        (("interpret", LENET, "--inputs", "x.npz", "--seed", "3"), "--seed is for random inputs"),
        (("fusions", LENET, "--inputs", "x.npz", "--seed", "3"), "--seed is for random inputs"),
        (("diff", LENET, INT8, "--inputs", "x.npz", "--seed", "3"), "--seed is for random inputs"),
        (
            ("extract", LENET, "--node", "c", "-o", "p", "--inputs", "x.npz", "--seed", "3"),
            "--seed is for random inputs",
        ),
        (("extract", LENET, "--node", "c", "-o", "p", "--ort", "1.20.1"), "--ort is for"),
        (("extract", LENET, "--node", "c", "-o", "p", "--by", "3%"), "--by is for --fault slower"),
        (("extract", LENET, "--fault", "wrong", "-o", "p.py", "--accumulator", "9"), "overflow"),
    ],
)
def test_an_option_that_would_not_be_read_is_refused(arguments, told, capfd):
    code, error = main(capfd, *arguments)
    assert code == 2 and told in error


@pytest.mark.parametrize(
    ("function", "arguments", "told"),
    [
        (tracer.count, {"run": True, "inputs": "x.npz"}, "run has random values"),
        (tracer.tune, {"apply": ["spinning=off"], "only": ["threads"]}, "only is for a search"),
        (tracer.tune, {"apply": ["spinning=off"], "allow": ["float16"]}, "allow is for"),
    ],
)
def test_an_argument_that_would_not_be_read_is_refused(function, arguments, told):
    with pytest.raises(UsageError, match=told):
        function(LENET, **arguments)


MEASURED = """
import resource, subprocess, sys
code = subprocess.run([sys.executable, "-m", "tracer", *sys.argv[1:]]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
sys.exit(code)
"""
"""A process begins with the peak of the one that starts it, so a small one starts the command."""


def command(folder, *arguments, **options):
    """A command as a process of its own, and the most memory that one of its processes had."""
    env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    env.pop("TRACER_IN_PROCESS", None)
    line = [sys.executable, "-c", MEASURED, *map(str, arguments)]
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, **options)
    return done.returncode, done.stderr, int(done.stdout.splitlines()[-1])


@pytest.fixture
def damaged(tmp_path):
    """Samples whose last quarter cannot be read: calibration needs the first of them alone."""
    x, y = io.BytesIO(), io.BytesIO()
    np.save(x, np.random.default_rng(0).random((400, 3, 32, 32), np.float32))
    np.save(y, np.arange(400) % 10)
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", x.getvalue())
        archive.writestr("labels.npy", y.getvalue())
    content = bytearray((tmp_path / "d.npz").read_bytes())
    content[len(x.getvalue()) * 3 // 4] ^= 255
    (tmp_path / "d.npz").write_bytes(content)
    return tmp_path / "d.npz"


def test_a_model_is_written_last(damaged, tmp_path, capfd):
    made = tmp_path / "o.onnx"
    code, line = main(capfd, "quantize", LENET, "--calibrate", damaged, "--limit", 4, "-o", made)
    assert (code, "d.npz: not an .npz file" in line, made.exists()) == (3, True, False)


def header_changes(content):
    """The file of an array with each byte of its header, in turn, replaced."""
    for place in range(0, content.index(b"\n"), 3):
        for byte in (b"(", b"\xff", b"0", b"'"):
            yield content[:place] + byte + content[place + 1 :]


def test_any_broken_header_of_an_array_is_one_error(tmp_path, capfd):
    stream = io.BytesIO()
    np.save(stream, np.zeros((2, 3, 32, 32), np.float32))
    for changed in header_changes(stream.getvalue()[:200] + stream.getvalue()[200:]):
        with zipfile.ZipFile(tmp_path / "i.npz", "w") as archive:
            archive.writestr("x.npy", changed)
        try:
            feedset.npz_members(tmp_path / "i.npz")
        except tracer.errors.InputError as error:
            assert "i.npz: not an .npz file of plain arrays" in str(error)
    with tarfile.open(tmp_path / "i.tar", "w") as tar:
        for name, content in (("1.npy", changed), ("1.cls", b"1")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    code, line = main(capfd, "interpret", LENET, "--accumulator", 20, "--fixed", "8:5/8:7",
                      "--data", tmp_path / "i.tar")  # fmt: skip
    assert (code, "i.tar" in line) == (3, True)


def test_an_array_that_expands_is_refused_before_it_is_unpacked(tmp_path, capfd, monkeypatch):
    np.savez_compressed(tmp_path / "i.npz", x=np.zeros((2000, 3, 32, 32), np.float32))
    monkeypatch.setattr(feedset, "_FREE", 1 << 20)
    code, line = main(capfd, "interpret", LENET, "--inputs", tmp_path / "i.npz")
    assert (code, "i.npz: 'x' unpacks from" in line) == (4, True)


@pytest.fixture
def profile(tmp_path):
    """What onnxruntime's profiler writes of three runs."""
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    session = ort.InferenceSession(LENET, options)
    for _ in range(3):
        session.run(None, {session.get_inputs()[0].name: np.zeros((1, 3, 32, 32), np.float32)})
    return Path(session.end_profiling())


def test_a_profile_or_a_plan_that_is_no_text_is_one_error(profile, tmp_path, capfd):
    content = profile.read_bytes()
    assert main(capfd, "report", profile)[0] == 0
    for place in range(1, len(content), len(content) // 12):
        (tmp_path / "o.json").write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        code, line = main(capfd, "report", tmp_path / "o.json")
        assert code == 0 or (code, "o.json" in line) == (3, True)
    made = ("--apply", "threads=1", "--save", tmp_path / "plan.json")
    assert main(capfd, "tune", LENET, *made)[0] == 0
    content = (tmp_path / "plan.json").read_bytes()
    for place in range(1, len(content), len(content) // 6):
        (tmp_path / "b.json").write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        code, line = main(capfd, "profile", LENET, "--plan", tmp_path / "b.json", "--runs", 2)
        assert (code, "b.json" in line) == (3, True)


def with_external(offset, length):
    """A model whose weight lies at some place of another file."""
    weight = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=1)
    for key, value in (("location", "w.bin"), ("offset", offset), ("length", length)):
        weight.external_data.add(key=key, value=value)
    made = parse('<ir_version: 9, opset_import: ["": 20]> g (float[4] x) => (float[4] y) '
                 "{ y = Add(x, w) }", w=np.zeros(4, np.float32))  # fmt: skip
    made.graph.initializer[0].CopyFrom(weight)
    return made


@pytest.mark.one_in(5)
@pytest.mark.parametrize("offset", ["abc", "-1", "1e3", "0x10", "9" * 40, "٣"])
@pytest.mark.parametrize("line", [("count",), ("export", "--to", "qonnx", "-o", "o.onnx")])
def test_a_place_of_external_data_that_is_no_number_is_refused(
    line, offset, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    Path("w.bin").write_bytes(bytes(16))
    for key in ("offset", "length"):
        made = with_external(**{"offset": "0", "length": "16", key: offset})
        Path("m.onnx").write_bytes(made.SerializeToString())
        code, told = main(capfd, line[0], "m.onnx", *line[1:])
        assert (code, f"external data whose {key} is" in told) == (3, True)
    Path("m.onnx").write_bytes(with_external("0", "16").SerializeToString())
    assert main(capfd, "count", "m.onnx")[0] == 0


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Normalizer", {"norm": "L9"}),
        ("SVMClassifier", {"kernel_type": "ZZZ", "coefficients": [1.0], "support_vectors": [1.0]}),
        ("LinearRegressor", {"post_transform": "ZZZ", "coefficients": [1.0, 2.0, 3.0]}),
        ("TreeEnsembleRegressor", {"nodes_modes": ["ZZZ"], "nodes_values": [1.0]}),
    ],
)
def test_an_attribute_that_no_operator_has_makes_work_unknown(op, attributes, tmp_path, capfd):
    node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [value("x", 1, [2, 3])], [value("y", 1, None)])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    assert main(capfd, "count", tmp_path / "m.onnx")[0] in (0, 3)


ENDLESS = """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) {
  one = Constant<value_int=1>() c = Cast<to=9>(one)
  y = Loop(, c, x) <body = b (int64 i, bool k, float[4] s) => (bool l, float[4] r)
  { l = Identity(k) r = Relu(s) }> }"""
CHAIN = """<ir_version: 9, opset_import: ["": 18]> g (float[1] x) => (float[N] y) {
  s = Constant<value_ints=[805306368]>() a = ConstantOfShape(s) b = Add(a, x) c = Cos(b)
  y = Cos(c) }"""
CROP = """<ir_version: 9, opset_import: ["": 18]> g (float[4] x) => (float[N] y) {
  s = Constant<value_ints=[SIZE]>() y = CenterCropPad(x, s) }"""


@pytest.mark.nightly
def test_a_search_for_what_is_faster_ends_at_its_limit(tmp_path):
    onnx.save(onnx.parser.parse_model(ENDLESS), tmp_path / "m.onnx")
    code, err, _ = command(tmp_path, "tune", "m.onnx", "--threads", 1, "--max-seconds", 3)
    assert (code, err.count("\n"), "the time limit was reached" in err) == (4, 1, True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "text", "codes"),
    [
        ("count", CHAIN, (0,)),
        ("interpret", CHAIN, (4,)),
        pytest.param("profile", CHAIN, (4,), marks=pytest.mark.nightly),
        ("profile", CROP.replace("SIZE", str(2**31)), (4,)),
        pytest.param(
            "profile", CROP.replace("SIZE", str(-(2**63))), (0, 3, 4, 5), marks=pytest.mark.nightly
        ),
    ],
)
def test_by_default_a_small_model_takes_less_than_a_gibibyte(name, text, codes, tmp_path):
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    options = ("--runs", 3) if name != "count" else ()
    quick = ("--no-roofline",) if name == "profile" else ()
    code, err, most = command(tmp_path, name, "m.onnx", *options, *quick)
    assert code in codes, err
    assert most < 1 << 30


def test_a_bomb_of_gzip_is_refused(tmp_path, capfd):
    (tmp_path / "m.onnx.gz").write_bytes(gzip.compress(bytes(80 << 20), 1))
    code, line = main(capfd, "count", tmp_path / "m.onnx.gz")
    assert (code, "unpacks to far more than its own size" in line) == (3, True)


@pytest.mark.parametrize("most", at_night([5, 8, 12, 20], but=[5, 20]))
def test_a_process_that_may_open_few_files_says_so(most, tmp_path):
    limits = (most, most)
    code, err, _ = command(
        tmp_path, "count", LENET,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
    )  # fmt: skip
    assert code == 3
    assert err == (
        f"tracer: error: a process may have {most} files open here, and needs 32. Raise the limit: "
        "ulimit -n 1024.\n"
    )


TIME_IS_UP = """
import os, signal, sys
from tracer import host
from tracer.cli import _output
from tracer.containment import signals
write = _output.write_atomically
def written(path, data, force):
    print(signals.seconds_left(), file=sys.stderr)
    write(path, data, force)
_output.write_atomically = written
def measuring(*arguments, **named):
    os.kill(os.getpid(), signal.SIGALRM)
if sys.argv.pop(1) == "while the machine is measured":
    host.peaks = measuring
from tracer.__main__ import main
sys.exit(main())
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("moment", ["while the machine is measured", "never"])
def test_complete_runs_are_a_success_and_no_limit_ends_what_writes_them(moment, tmp_path):
    line = ("profile", LENET, "--runs", "3", "--max-seconds", "300", "-o", "o.trace", "-o",
            "o.json")  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    env.pop("TRACER_IN_PROCESS", None)
    options = () if moment == "while the machine is measured" else ("--no-roofline",)
    done = subprocess.run(
        [sys.executable, "-c", TIME_IS_UP, moment, *line, *options], cwd=tmp_path, env=env,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-4:] == ["inf", "wrote o.trace", "inf", "wrote o.json"]
    trace = tracer.load(tmp_path / "o.trace")
    assert not trace.is_incomplete and len(trace.runs[0].wall_us) > 0
    is_told = any(note.startswith("out of time after the last run") for note in trace.notes)
    assert is_told == (moment != "never")


WRITERS = [
    ("profile LENET --runs 2 --no-roofline -o x.trace", "x.trace"),
    ("count LENET -o x.csv", "x.csv"),
    ("quantize LENET --calibrate digits --limit 8 -o x.onnx", "x.onnx"),
    ("tune LENET --apply dynamic_int8=int8 -o x.onnx", "x.onnx"),
    ("extract LENET --node node_Conv_22 -o x.onnx", "x.onnx"),
    ("interpret LENET -o x.npz", "x.npz"),
    ("interpret LENET -o x", "x/of_another.pb"),
    ("interpret INT8 --accumulator 32 --certificate x.json", "x.json"),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("line", "name"), WRITERS, ids=[" ".join(w) for w in WRITERS])
def test_a_file_that_appears_while_a_command_works_is_kept(
    line, name, tmp_path, monkeypatch, capfd
):
    """Two commands with one new file: the second to end says that it exists, as at its start."""
    flush = files._flush

    def appear(stream):
        other = tmp_path / name
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(b"of another command")
        flush(stream)

    monkeypatch.setattr(files, "_flush", appear)
    models = {"LENET": LENET, "INT8": str(Path("models/lenet/lenet.int8.onnx").resolve())}
    monkeypatch.chdir(tmp_path)
    code, error = main(capfd, *(models.get(word, word) for word in line.split()))
    assert code == 3
    assert ("x: " if "/" in name else f"{name}: the file exists") in error
    assert (tmp_path / name).read_bytes() == b"of another command"


@pytest.mark.parametrize(("line", "told"), [
    (["report", "run.trace", "--model", "nope.onnx"], "nope.onnx: no such file"),
    (["export", INT8, "--to", "qonnx", "--opset", "13", "-o", "q.onnx"], "reads no option of a"),
    (["export", INT8, "--to", "qonnx", "--weights", "w.npz", "-o", "q.onnx"], "reads no option of"),
    (["export", INT8, "--to", "qonnx", "--input-dtype", "float16", "-o", "q.onnx"],
     "Leave out all but --to, --seed and --force"),
    (["fingerprint", LENET, "--batch", "1,1"], "'1,1' is not a valid whole number"),
    (["profile", LENET, "--min-time", "x"], "'x' is not a valid number"),
    (["interpret", INT8, "--check-exact", "-o", "c.csv"], "neither runs nor writes"),
    (["interpret", INT8, "--check-exact", "--accumulator", "18"], "neither runs nor writes"),
    (["count", LENET, "--max-macs", "100", "--max-params", "3"],
     "has 651,720 MACs; --max-macs is 100; and 61,780 parameters; --max-params is 3"),
])  # fmt: skip
def test_what_a_command_would_not_read_is_refused_and_each_limit_is_told(
    line, told, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    np.savez("w.npz", w=np.zeros(1))
    if line[0] == "report":
        tracer.cli.main(["count", LENET, "-o", "run.trace"])
        capfd.readouterr()
    assert tracer.cli.main(line) in (1, 2, 3)
    assert told in " ".join(capfd.readouterr().err.split())
    assert not Path("q.onnx").exists() and not Path("c.csv").exists()


def test_a_size_that_is_given_twice_is_refused(capfd):
    code, line = main(capfd, "count", LENET, "--dim", "batch=3", "--dim", "batch=4")
    assert (code, "'batch' is given twice" in line) == (2, True)


def test_a_preset_that_is_nearly_right_is_suggested_to_a_sweep(capfd):
    given = ("--accumulator", "18,x86-madubs", "--data", "digits")
    code, line = main(capfd, "whatif", INT8, *given)
    assert (code, "Did you mean 'x86-maddubs'" in line) == (2, True)
