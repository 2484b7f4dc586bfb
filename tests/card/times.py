"""Times of networks on the card: what `tracer.profile` says, and events of CUDA around a step.

The truth of the kernels' time comes from CUDA's own events. The card sleeps first, so that the host
queues a whole step meanwhile and the kernels follow each other without waiting for launches. Short
gaps remain between them: torch's profiler tells those of a step, and the time between its events
less the gaps is the truth. Without the profiler it is an upper bound.
"""

import re
import statistics
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np

from tests.card.parts import device, keep

SECONDS: float = 90

_RUNS = 10
_STARTING = 15
"""Seconds that another process or torch.compile need at least."""
_ASLEEP = 2.0
"""Cycles that the card sleeps ÷ those of the host's time for a step."""
_CYCLES_PER_US = 2_000
"""At most: an H100 has 1,980 MHz."""
_LLAMA = {"width": 1024, "heads": 16, "groups": 4, "layers": 4, "hidden": 2816, "vocabulary": 8192}
_ENCODER = {"width": 256, "heads": 8, "layers": 6, "patch": 4}
_STEP = {"backward": True, "optimizer": "adam"}
_RESNET20, _RESNET50, _TRANSFORMER, _DECODER, _CAPTURED = (
    "models/resnet_cifar/torch_net.py:ResNet20",
    "experiments/networks/family.py:bottleneck50",
    "models/transformer/torch_net.py:PatchTransformer",
    "models/llama/torch_net.py:Llama",
    "tests/card/networks.py:Captured",
)
NETWORKS = {
    "resnet20": (_RESNET20, {"batch": 1024}),
    "resnet20 training": (_RESNET20, {"batch": 1024, **_STEP}),
    "resnet50": (_RESNET50, {"batch": 32}),
    "resnet50 training": (_RESNET50, {"batch": 32, **_STEP}),
    "transformer": (_TRANSFORMER, {"batch": 512, "args": _ENCODER}),
    "transformer training": (_TRANSFORMER, {"batch": 512, "args": _ENCODER, **_STEP}),
    "llama prefill": (_DECODER, {"args": _LLAMA, "tokens": (2048, 0)}),
    "llama decode": (_DECODER, {"args": _LLAMA, "tokens": (1, 2048)}),
    "resnet20 captured": (_CAPTURED, {"batch": 1024}),
    "resnet20 batch 1": (_RESNET20, {"batch": 1}),
}
"""The networks: their name on the command line, and the options of each."""


def measure(seconds):
    """Returns the figures of a command, of each network, and of torch.compile.

    Networks run in this process: starting another takes as long as several of them.
    """
    began, longest = time.monotonic(), 0.0
    measured = {"command": _guarded(_command)}
    keep(measured)
    for name, (target, options) in NETWORKS.items():
        start = time.monotonic()
        if device() == "cuda" and start - began + 1.2 * longest > seconds:
            break
        measured[name] = {}
        _network(measured[name], target, dict(options))
        keep(measured)
        longest = max(longest, time.monotonic() - start)
    left = seconds - (time.monotonic() - began)
    if left > _STARTING:
        measured["contained"] = _guarded(_contained, left)
        keep(measured)
    left = seconds - (time.monotonic() - began)
    if left > _STARTING:
        measured["compiled"] = _guarded(_compiled)
    return measured


def _guarded(function, *arguments):
    """Returns what `function` returns with its seconds; or its error, which ends nothing."""
    began = time.monotonic()
    try:
        return {**function(*arguments), "seconds": round(time.monotonic() - began, 2)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}",
                "traceback": traceback.format_exc().splitlines()}  # fmt: skip


def _network(figures, target, options):
    """Adds the figures of a network; what fails leaves those of the others."""
    tokens = options.pop("tokens", None)
    if device() == "cpu":  # every line runs, on little work
        options["batch"] = 1 if tokens is None else None
        tokens = tokens and (4, min(tokens[1], 4))
    inputs = _tokens(*tokens) if tokens else None
    figures |= _guarded(lambda: _figures(_profile(target, inputs, options, in_process=True)))
    if device() == "cuda":
        figures["events"] = _guarded(_truth, target, inputs, options)
    if "truth_us" in figures.get("events", {}) and "sum_us" in figures:
        figures["ratio"] = figures["sum_us"] / figures["events"]["truth_us"]


def _tokens(count, past):
    """The inputs of the decoder: tokens, and a cache with `past` tokens."""
    random, size = np.random.default_rng(0), _LLAMA["width"] // _LLAMA["heads"]
    ids = random.integers(0, _LLAMA["vocabulary"], (1, count))
    shape = (1, _LLAMA["groups"], past, size)
    cache = [random.random(shape, np.float32) for _ in range(2 * _LLAMA["layers"])]
    return [ids, *cache]


def _profile(target, inputs, options, **more):
    import tracer

    runs = _RUNS if device() == "cuda" else 2
    given = {} if inputs is None else {"inputs": inputs}
    return tracer.profile_framework(
        target, device=device(), runs=runs, warmup=5 if runs > 2 else 1, **options, **given, **more
    )


def _figures(trace):
    """What the trace says, in µs per run."""
    run, nodes = trace.runs[0], trace.nodes
    told = _of_notes(" ".join(run.notes))
    total = float(nodes["time_us"].sum())
    return {
        "sum_us": total,
        "kernels_us": total / told.get("kernels", np.inf),
        "wall_us": run.median_us,
        "recorded_us": float(np.median(run.instrumented_us)),
        "host_us": float(nodes["time_us_host"].sum()),
        "rows": len(nodes),
        "notes": list(run.notes),
        **told,
        "operators": _top(trace, "node"),
        "modules": _top(trace, "module"),
        "kernels_by_time": _top(trace, "kernel"),
    }


def _of_notes(text):
    """The numbers of the notes."""
    patterns = {
        "busy_us": r"busy ([\d,.]+) of",
        "kernels": r"([\d,.]+) kernels a run on",
        "streams": r"a run on ([\d,]+) stream",
        "gaps": r"([\d,.]+) gaps between",
        "gaps_us": r"gaps between kernels took ([\d,.]+) µs",
        "waiting_us": r"in ([\d,.]+) µs of them the card waited",
        "of_graphs": r"([\d,.]+) kernels of a run are in",
        "peak_mb": r"memory of the card: ([\d,.]+) MB",
    }
    found = {name: re.search(pattern, text) for name, pattern in patterns.items()}
    return {
        name: float(each[1].rstrip(".").replace(",", "")) for name, each in found.items() if each
    }


def _top(trace, by):
    """The ten longest rows of a table, as name and µs."""
    table = trace.top(10, by=by)
    names = table["module" if by == "module" else "op_type" if by == "kernel" else "node"]
    return [[str(n), float(t)] for n, t in zip(names, table["time_us"], strict=True)]


def _step(target, inputs, options):
    """Returns the same step, written here."""
    import torch

    from tracer.exporters.subject import load_source

    model = load_source(target, options.get("args"), seed=0).to("cuda")
    training = options.get("backward", False)
    model.train(training)
    if inputs is None:
        random = np.random.default_rng(0)
        inputs = [random.random((options["batch"], *model.input_shape), np.float32)]
    tensors = [torch.tensor(each, device="cuda") for each in inputs]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3) if training else None

    def forward():
        with torch.no_grad():
            model(*tensors)

    def train():
        for parameter in model.parameters():
            parameter.grad = None
        model(*tensors).sum().backward()
        optimizer.step()

    return train if training else forward


def _truth(target, inputs, options):
    import torch

    torch.cuda.empty_cache()
    step = _step(target, inputs, options)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    host_us = _median(lambda: _host_us(step))
    event_us = _median(lambda: _event_us(step, 0))
    cycles = int(_ASLEEP * _CYCLES_PER_US * max(host_us, 200.0))
    queued_us = _median(lambda: _event_us(step, cycles))
    peak = torch.cuda.max_memory_allocated()
    recorded = [_recorded(step, 3 * cycles) for _ in range(3)]  # recording slows launches
    figures = {
        "event_us": event_us,
        "queued_event_us": queued_us,
        "launching_us": host_us,
        "peak_bytes": peak,
    }
    if not all(recorded):
        return figures | {"events_of_kineto": 0}
    sums, gaps, truths = (statistics.median(each) for each in zip(*recorded, strict=True))
    return figures | {"gaps_us": gaps, "truth_us": truths, "torch_us": sums}


def _median(timed):
    return statistics.median(timed() for _ in range(_RUNS))


def _host_us(step):
    """µs in which the host launches a step."""
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    took = time.perf_counter() - began
    torch.cuda.synchronize()
    return took * 1e6


def _event_us(step, cycles):
    """µs of a step between two events of CUDA, after the card slept for some cycles."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    if cycles:
        torch.cuda._sleep(cycles)
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3


def _recorded(step, cycles):
    """Returns the sum of the kernels of a queued step, the gaps, and the time less the gaps, µs.

    None where torch recorded no work of the card.
    """
    from torch.autograd import DeviceType
    from torch.autograd.profiler import profile

    with profile(use_kineto=True, use_device="cuda") as session:
        between = _event_us(step, cycles)
    work = sorted(
        (event.start_ns(), event.end_ns())
        for event in session.kineto_results.events()
        if event.device_type() == DeviceType.CUDA
        and not event.is_user_annotation()
        and "spin" not in event.name()
        and event.duration_ns()
    )
    if not work:
        return None
    end, gaps = work[0][0], 0
    for start, stop in work:
        gaps += max(start - end, 0)
        end = max(end, stop)
    return sum(stop - start for start, stop in work) / 1e3, gaps / 1e3, between - gaps / 1e3


def _command():
    """Runs a command as a user does, with a page and a table as files."""
    output, much = Path("build/card"), device() == "cuda"
    output.mkdir(parents=True, exist_ok=True)
    arguments = [
        sys.executable, "-m", "tracer", "profile", _RESNET20, "--device", device(), "--backward",
        "--optimizer", "adam", "--batch", "64" if much else "1",
        "--runs", "10" if much else "2", "--by", "module", "--force",
        "-o", str(output / "step.html"), "-o", str(output / "step.csv"),
    ]  # fmt: skip
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    return {
        "command": " ".join(arguments[2:]),
        "code": done.returncode,
        "stdout": done.stdout.splitlines()[:40],
        "stderr": done.stderr.splitlines()[-20:],
        "page_bytes": (output / "step.html").stat().st_size if not done.returncode else 0,
    }


def _contained(seconds):
    """ResNet-20 once more, in a process of its own as `tracer.profile` has it by default."""
    from tracer.limits import Limits

    target, options = NETWORKS["resnet20"]
    options = options if device() == "cuda" else {"batch": 1}
    trace = _profile(target, None, options, limits=Limits(seconds=seconds))
    return {"sum_us": float(trace.nodes["time_us"].sum()), "notes": list(trace.runs[0].notes)}


def _compiled():
    """A transformer by torch.compile, whose kernels Triton makes."""
    options = {"batch": 64, "args": _ENCODER | {"layers": 2}}
    trace = _profile(_TRANSFORMER, None, options, compiled=True, in_process=True)
    runs = {run.executor: run for run in trace.runs}
    kernels = list(runs["torch-compile"].kernels) if "torch-compile" in runs else []
    return {
        "executors": list(runs),
        "wall_us": {name: run.median_us for name, run in runs.items()},
        "triton": sorted({k.op_type for k in kernels if k.op_type.startswith("triton")})[:20],
        "notes": list(trace.notes),
    }
