import ctypes
import platform
from itertools import pairwise

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto

import tracer
from tests.graphs import parse
from tracer.errors import InputError
from tracer.executors.onnxruntime import feeding, sessions
from tracer.executors.settings import OrtSettings, SessionSettings
from tracer.graph import loading
from tracer.inputs.feedset import FeedSet
from tracer.support.measurements import RunTimer

FOREIGN = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
}


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (1,), (0, 3), ()])
@pytest.mark.parametrize("dtype", FOREIGN)
def test_values_of_element_types_that_numpy_lacks_arrive_as_they_are(dtype, shape):
    rank = ",".join("ABC"[: len(shape)])
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({dtype}[{rank}] x) => (float[{rank}] y)'
    model = loading.from_proto(parse(text + " { y = Cast <to = 1> (x) }"))
    session = ort.InferenceSession(
        model.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = (np.arange(np.prod(shape)).reshape(shape) % 7).astype(FOREIGN[dtype])
    (y,) = feeding.runner(model, session, {"x": x})()
    assert np.array_equal(y.numpy(), x.astype(np.float32))


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (1,), (0, 3), ()])
@pytest.mark.parametrize("dtype", FOREIGN)
def test_outputs_of_element_types_that_numpy_lacks_come_back_as_they_are(dtype, shape):
    rank = ",".join("ABC"[: len(shape)])
    text = f'<ir_version: 10, opset_import: ["": 21]> g (float[{rank}] x) => ({dtype}[{rank}] y)'
    to = TensorProto.DataType.Value(dtype.upper())
    model = loading.from_proto(parse(f"{text} {{ y = Cast <to = {to}> (x) }}"))
    session = ort.InferenceSession(
        model.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = (np.arange(np.prod(shape)).reshape(shape) % 7).astype(np.float32)
    y = feeding.as_array(feeding.runner(model, session, {"x": x})()[0])
    assert y.dtype == FOREIGN[dtype]
    np.testing.assert_array_equal(y.astype(np.float32), x)


def test_more_inputs_than_onnxruntime_checks_in_time_arrive():
    names = [f"x{i}" for i in range(feeding._MANY + 1)]
    text = f"g ({', '.join(f'float[1] {name}' for name in names)}) => (float[1] y)"
    head = '<ir_version: 10, opset_import: ["": 21]> '
    model = loading.from_proto(parse(f"{head}{text} {{ y = Sum ({', '.join(names)}) }}"))
    session = ort.InferenceSession(
        model.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {name: np.full(1, i, np.float32) for i, name in enumerate(names)}
    run = feeding.runner(model, session, feeds)
    assert run() == run() == session.run(None, feeds)
    for wrong in ({"x0": np.ones(2, np.float32)}, {"x0": np.ones(1, np.int64)}, {"y": feeds["x0"]}):
        with pytest.raises(InputError):
            feeding.runner(model, session, feeds | wrong)()


def test_more_texts_than_onnxruntime_checks_in_time_arrive():
    names = [f"x{i}" for i in range(feeding._MANY + 1)]
    text = f"g ({', '.join(f'string[1] {name}' for name in names)}) => (string[n] y)"
    head = '<ir_version: 10, opset_import: ["": 21]> '
    model = loading.from_proto(
        parse(f"{head}{text} {{ y = Concat <axis = 0> ({', '.join(names)}) }}")
    )
    session = ort.InferenceSession(
        model.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {name: np.array([name], object) for name in names}
    (y,) = feeding.runner(model, session, feeds)()
    assert y.tolist() == names


def test_text_beside_a_type_that_numpy_lacks_is_refused_in_one_line():
    text = "g (string[1] x, float8e4m3fn[1] like) => (float8e4m3fn[1] y) { y = CastLike (x, like) }"
    model = loading.from_proto(parse(f'<ir_version: 10, opset_import: ["": 21]> {text}'))
    session = ort.InferenceSession(
        model.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {"x": np.array(["1"]), "like": np.ones(1, FOREIGN["float8e4m3fn"])}
    with pytest.raises(InputError, match=r"takes no text, as input 'x' is, .* 'like'"):
        feeding.runner(model, session, feeds)


def test_a_run_with_bound_values_finds_its_option():
    """Without the option, onnxruntime raises and catches an exception in each run: 29 µs."""
    assert feeding.run_options().get_run_config_entry("gpu_graph_id") == "-1"


PRODUCT = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N,4] x) => (float[N,4] y, float[N,4] z) { y = Mul (x, x)  z = Add (x, x) }
"""


def factory(session):
    model = loading.from_proto(parse(PRODUCT))
    settings = OrtSettings(threads=1, session=session)
    return sessions.Factory(model, model.proto.SerializeToString(), settings)


def test_bound_runs_compute_what_others_do_in_memory_that_stays():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    made = factory(SessionSettings(bound=True))
    run = feeding.prepared(made, made.open(), {"x": x})
    first, second = run(), run()
    assert np.array_equal(first[0].numpy(), x * x) and np.array_equal(first[1].numpy(), x + x)
    assert [each.data_ptr() for each in first] == [each.data_ptr() for each in second]


@pytest.mark.skipif(
    not feeding.can_flush_denormals(), reason="the control register is not known here"
)
def test_denormals_are_flushed_in_runs_of_a_session_alone():
    x = np.full((2, 4), 1e-20, np.float32)  # its square is denormal
    made = factory(SessionSettings(flushes_denormals=True))
    others = factory(SessionSettings())
    run = feeding.prepared(made, made.open(), {"x": x})
    plain = feeding.prepared(others, others.open(), {"x": x})
    before = plain()[0]
    assert (before > 0).all() and (before < np.finfo(np.float32).tiny).all()
    assert not run()[0].any()
    assert np.array_equal(plain()[0], before)
    assert np.float32(1e-20) * np.float32(1e-20) > 0  # this thread is as it was


def test_what_a_session_is_told_reaches_onnxruntime():
    chosen = SessionSettings(
        parallel=True, inter_op_threads=2, memory_pattern=False, arena=False, dims={"N": 2},
        entries={"session.intra_op.allow_spinning": "0"}, disabled=("NchwcTransformer",),
    )  # fmt: skip
    session = factory(chosen).open()
    options = session.get_session_options()
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert options.inter_op_num_threads == 2
    assert not options.enable_mem_pattern and not options.enable_cpu_mem_arena
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert session.get_inputs()[0].shape == [2, 4]


def test_a_sequence_has_tensors_of_different_sizes():
    proto = parse("""<ir_version: 8, opset_import: ["": 18]>
        g (seq(float[N]) s) => (float[M] y) { y = ConcatFromSequence <axis = 0> (s) }""")
    model = loading.from_proto(proto)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    values = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    (y,) = feeding.runner(model, session, {"s": values})()
    assert y.tolist() == [1, 1, 0, 0, 0]


def test_waits_for_a_processor_are_no_time_of_returning_outputs():
    """Truth: 300 µs, on a machine whose other programs have the processor in every run."""
    random = np.random.default_rng(0)

    def timer(cpu_us):
        waits = random.uniform(20_000, 60_000, 15)
        return RunTimer((cpu_us + waits).tolist(), [9] * 15, [cpu_us] * 15)

    timers = [timer(us) for us in (35_400.0, 35_000.0, 200.0, 100.0)]
    pairs = feeding.ReturnComparison((list, list), (list, list), timers)
    assert pairs.us() == pytest.approx(300)


def test_text_that_a_model_returns_has_an_empty_run_and_runs_that_keep_it():
    """Truth: the text that onnxruntime returns, which a run that keeps it has as its own value."""
    proto = parse("""<ir_version: 8, opset_import: ["": 17]>
        g (float[64,64] x) => (string[64,64] y) { y = Cast <to = 8> (x) }""")
    model, settings = loading.from_proto(proto), OrtSettings(threads=1)
    feeds = {"x": np.arange(4096, dtype=np.float32).reshape(64, 64)}
    made = sessions.Factory(model, proto.SerializeToString(), settings)
    plain = feeding.PlainSession(made, FeedSet(feeds, batch=None))
    results = plain.run()
    empty = feeding.empty_runner(model, feeds, results, settings)
    assert [value.tolist() for value in empty.run()] == [[[""]]]
    pairs = feeding.compare_returning(made, feeds, results, plain, empty)
    (kept,) = pairs.model[1]()
    assert isinstance(kept, ort.OrtValue)
    assert kept.numpy().tolist() == results[0].tolist()


class _Blocks(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", *"abcdefg")]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc for its free memory")
def test_profiled_runs_begin_with_tidy_memory(monkeypatch):
    """Truth: the small blocks that glibc has yet to sort, which the first large request sorts."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("glibc before 2.33")
    library.mallinfo2.restype = _Blocks
    counts, run = {True: [], False: []}, ort.InferenceSession.run

    def counting(session, *arguments):
        profiled = session.get_session_options().enable_profiling
        counts[profiled].append(library.mallinfo2().smblks)
        return run(session, *arguments)

    monkeypatch.setattr(ort.InferenceSession, "run", counting)
    names = ["x", *(f"t{i}" for i in range(2000))]
    nodes = " ".join(f"{y} = Neg ({x})" for x, y in pairwise(names))
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] t1999)'
    tracer.profile(parse(f"{text} {{ {nodes} }}"), threads=1, runs=5)
    assert max(counts[True]) < 500 < max(counts[False])
