"""onnxruntime's CUDA provider: networks of `models/` under `tracer profile --provider cuda`.

The truth about the time on the device are CUDA events around runs of a bound session on a stream of
torch's, which the session uses: no profiler is on. The truth about values is the CPU provider.
"""

import ctypes
import json
import statistics
import tempfile
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from tests.card import parts

SECONDS: float = 40

_RESNET, _LENET, _TRANSFORMER = (
    Path(f"models/{name}.onnx")
    for name in ("resnet_cifar/resnet20", "lenet/lenet", "transformer/transformer")
)
CASES = ((_RESNET, 1), (_RESNET, 256), (_TRANSFORMER, 1), (_LENET, 1), (_TRANSFORMER, 256),
         (_LENET, 256))  # fmt: skip
"""Networks and batches: of one sample, a small network is shorter than the launches of its kernels.
"""
_RUNS, _WARMING_S = 50, 0.2
_SHOWN = 240
"""Characters of a kernel's name: those of templates are long."""


def measure(seconds):
    """Returns a record for each network; a step that failed has its error in its place."""
    end = time.monotonic() + seconds
    provider = "cuda" if parts.device() == "cuda" else "cpu"
    result = {"provider": provider, "onnxruntime": load(provider), "networks": {}}
    with tempfile.TemporaryDirectory(prefix="card-") as folder:
        measure_cases(provider, [*CASES, (copying_network(Path(folder)), 1)], result, end)
    return result


def measure_cases(provider, cases, result, end):
    """Puts a record of each network and batch into the result, and keeps it after each step."""
    records = {case: {} for case in cases if provider == "cuda" or case[1] == 1}
    for (path, batch), record in records.items():
        result["networks"][f"{path.stem} batch {batch}"] = record
        for step in (outputs, times, profile):
            take(record, step, path, batch, provider, end)
            parts.keep(result)
    for (path, batch), record in records.items():  # last: a capture may end the process
        if provider == "cuda":
            take(record, graph, path, batch, provider, end)
            parts.keep(result)
    for record in records.values():
        summed = record.get("profile", {}).get("device_us")
        for step, name in (("times", "event_us"), ("graph", "graph_us")):
            truth = record.get(step, {}).get(name)
            if summed and truth:
                record[f"device_us_by_{name}"] = summed / truth


def copying_network(folder):
    """Saves two convolutions around an operator that the CUDA provider lacks; returns the file."""
    draw = np.random.default_rng(0)
    weights = {"v": draw.standard_normal((8, 3, 3, 3)), "w": draw.standard_normal((4, 8, 1, 1))}
    proto = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        agraph (float[batch,3,32,32] x) => (float[batch,4,16,16] y) {
            [conv1] a = Conv <pads = [1, 1, 1, 1]> (x, v)
            [pool] b = LpPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
            [conv2] c = Conv (b, w)
            [relu] y = Relu (c)
        }""")
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(value.astype(np.float32), name)
        for name, value in weights.items()
    )
    path = folder / "copying.onnx"
    onnx.save(proto, path)
    return path


def take(record, step, path, batch, provider, end):
    """Puts the result of a step into a record, or why there is none."""
    if time.monotonic() > end - 2:
        record[step.__name__] = {"error": "no seconds were left"}
        return
    try:
        record[step.__name__] = step(path, provider, batch)
    except Exception as error:
        record[step.__name__] = {
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc().splitlines()[-12:],
        }


def load(provider):
    """Imports onnxruntime after torch, whose libraries of CUDA it shares; returns what it is.

    Raises `Skipped` with the loader's own words where the provider does not load.
    """
    import torch  # isort: skip - before onnxruntime
    import onnxruntime as ort

    about = {
        "version": ort.__version__,
        "build": ort.get_build_info(),
        "providers": ort.get_available_providers(),
    }
    if provider == "cpu":
        return about
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise parts.Skipped(f"onnxruntime {ort.__version__} has no CUDA provider")
    torch.zeros(1, device="cuda")
    if "CUDAExecutionProvider" not in session_of(_LENET, provider).get_providers():
        # only now: the library keeps what it finds when it is loaded, and works after onnxruntime
        library = Path(ort.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
        try:
            ctypes.CDLL(str(library))
            reason = "the library loads, and finds no card that it takes"
        except OSError as error:
            reason = str(error)
        raise parts.Skipped(f"the CUDA provider of onnxruntime {ort.__version__}: {reason}")
    return about


def session_of(path, provider, **options):
    """Opens a network on a provider; `options` are the provider's own."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    name = "CUDAExecutionProvider" if provider == "cuda" else "CPUExecutionProvider"
    return ort.InferenceSession(path.read_bytes(), settings, providers=[(name, options)])


def profile(path, provider, batch):
    """Returns what `tracer profile` says of a network."""
    import tracer

    with kernel_names(path) as names:
        trace = tracer.profile(
            path, provider=provider, runs=60, batch=batch, in_process=True, seed=1
        )
    run, nodes = trace.runs[0], trace.nodes
    ran = [kernel for kernel in run.kernels if not kernel.op_type.startswith("Memcpy")]
    return {
        "wall_us": float(np.median(run.wall_us)),
        "wall_fastest_us": float(np.min(run.wall_us)),
        "runs": len(run.wall_us),
        "host_us": float(nodes["time_us"].sum()),
        "device_us": _known(nodes["time_us_device"].sum(min_count=1)),
        "kernels": len(run.kernels),
        "on_cpu": [k.node or k.name for k in ran if k.provider.startswith("CPU")],
        "copies": [
            {"name": k.name, "op_type": k.op_type, "device_us": k.device_us}
            for k in run.kernels if k.op_type.startswith("Memcpy")
        ],
        "notes": list(run.notes),
        "launched": names,
        "nodes": [
            {"node": row.node, "op_type": row.op_type, "kernels": row.kernels,
             "host_us": _known(row.time_us), "device_us": _known(row.time_us_device)}
            for row in nodes.itertuples()
        ],
    }  # fmt: skip


@contextmanager
def kernel_names(path):
    """Yields a dictionary that gets the names of the device's kernels by node of onnxruntime."""
    from tracer.executors.onnxruntime import device_times, kernel_nodes
    from tracer.graph import loading

    model = loading.load(path)

    read, rows_of = device_times.read_launches, device_times.launching_events
    names, labels, found = [], [], {}

    def read_with_names(path):
        events = json.loads(path.read_text())["traceEvents"]
        calls = {
            _correlation(event): event["ts"]
            for event in events
            if event.get("cat") in ("cuda_runtime", "cuda_driver")
        }
        work = [
            (calls[_correlation(event)], event["dur"], event["name"])
            for event in events
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
            and _correlation(event) in calls
        ]
        names[:] = [name for _, _, name in sorted(work)]
        return read(path)

    def rows_with_names(events, launches, zero_ns):
        rows = rows_of(events, launches, zero_ns)
        for row, name in zip(rows.tolist(), names, strict=False):
            raw = labels[0].kernels[events.label[row] - 2].name if row >= 0 else ""
            node = kernel_nodes.original(model, raw)
            kernels = found.setdefault(node, [])
            if name[:_SHOWN] not in kernels:
                kernels.append(name[:_SHOWN])
        return rows

    measure_device = device_times.measure

    def measure_with_labels(session, run, known, folder, most):
        labels[:] = [known]
        return measure_device(session, run, known, folder, most)

    device_times.read_launches = read_with_names
    device_times.launching_events = rows_with_names
    device_times.measure = measure_with_labels
    try:
        yield found
    finally:
        device_times.read_launches, device_times.launching_events = read, rows_of
        device_times.measure = measure_device


def _correlation(event):
    return event.get("args", {}).get("correlation", -1)


def _known(value):
    return None if np.isnan(value) else float(value)


def feeds_of(session, batch):
    """Random feeds: integers below 10, and open dimensions of `batch`."""
    draw = np.random.default_rng(1)
    feeds = {}
    for value in session.get_inputs():
        shape = [size if isinstance(size, int) else batch for size in value.shape]
        if "int" in value.type:
            dtype = value.type.removeprefix("tensor(").removesuffix(")")
            feeds[value.name] = draw.integers(0, 10, shape).astype(dtype)
        else:
            feeds[value.name] = draw.standard_normal(shape).astype(np.float32)
    return feeds


def times(path, provider, batch):
    """Returns the time of a run on bound memory, by the clock of the host and by CUDA events, µs.

    Events enclose many runs that follow each other without waiting, so that launches overlap with
    the work before them: `event_us` has gaps in it where launching takes longer than the work.
    """
    taken = {"bound_host_us": _bound(path, provider, batch, {}, by_events=False)}
    if provider == "cuda":
        taken["event_us"] = _bound(path, provider, batch, {}, by_events=True)
    return taken


def graph(path, provider, batch):
    """Returns the time of the network as a CUDA graph, which has no launches, by CUDA events."""
    options = {"enable_cuda_graph": "1"}
    return {"graph_us": _bound(path, provider, batch, options, by_events=True)}


def _bound(path, provider, batch, options, by_events):
    """The median time of a run in µs, by events on the session's stream or by the host's clock."""
    import onnxruntime as ort
    import torch

    run_options = ort.RunOptions()
    if "enable_cuda_graph" not in options:  # without it each run raises and catches an exception
        run_options.add_run_config_entry("gpu_graph_id", "-1")
    if by_events:  # runs follow each other without waiting
        run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if provider == "cuda":
        stream = torch.cuda.Stream()
        options = {"user_compute_stream": str(stream.cuda_stream), **options}
    session = session_of(path, provider, **options)
    binding = session.io_binding()
    held = []
    for key, value in feeds_of(session, batch).items():
        held.append(ort.OrtValue.ortvalue_from_numpy(value, provider, 0))
        binding.bind_ortvalue_input(key, held[-1])
    for output in session.get_outputs():
        binding.bind_output(output.name, provider, 0)
    session.run_with_iobinding(binding)
    for output, value in zip(session.get_outputs(), binding.get_outputs(), strict=True):
        held.append(value)
        binding.bind_ortvalue_output(output.name, value)
    awake = time.monotonic() + _WARMING_S  # clocks rise, threads wake
    while time.monotonic() < awake:
        session.run_with_iobinding(binding, run_options)
    if not by_events:
        return statistics.median(
            _host_us(lambda: session.run_with_iobinding(binding, run_options)) for _ in range(_RUNS)
        )
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    took = []
    for _ in range(5):
        begin.record(stream)
        for _ in range(_RUNS):
            session.run_with_iobinding(binding, run_options)
        end.record(stream)
        end.synchronize()
        took.append(1e3 * begin.elapsed_time(end) / _RUNS)
    return statistics.median(took)


def _host_us(run):
    begin = time.perf_counter()
    run()
    return 1e6 * (time.perf_counter() - begin)


def outputs(path, provider, batch):
    """Returns how far the provider's outputs are from the CPU's, in TF32 (its default) and without.

    That is the largest difference ÷ the largest value, and the share of equal floats.
    """
    cpu = session_of(path, "cpu")
    feeds = feeds_of(cpu, batch)
    expected = cpu.run(None, feeds)
    found = {}
    for name, options in (("default", {}), ("use_tf32=0", {"use_tf32": "0"})):
        values = session_of(path, provider, **(options if provider == "cuda" else {})).run(
            None, feeds
        )
        found[name] = [
            {"difference": float(np.abs(a - b).max() / np.abs(b).max()),
             "equal": float(np.mean(_bits(a) == _bits(b)))}
            for a, b in zip(values, expected, strict=True)
        ]  # fmt: skip
    return found


def _bits(values):
    return values.view(f"u{values.itemsize}")
