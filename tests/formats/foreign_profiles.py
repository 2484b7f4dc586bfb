"""Profiles that onnxruntime writes here, and such as other versions and providers would write."""

import json
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime import GraphOptimizationLevel as Level
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from tracer.graph.model import node_protos

BODIES = """<ir_version: 8, opset_import: ["" : 17]>
bodies (float[4] x, int64 n, bool b) => (float[4] y) {
  k = Constant <value = bool {1}> ()
  c = Constant <value = float[4] {1, 2, 3, 4}> ()
  a = Relu (x)
  l = Loop (n, k, a) <body = step (int64 i, bool go, float[4] s) => (bool on, float[4] t) {
    q = Relu (s)
    on = Identity (go)
    d = Constant <value = float[4] {1, 2, 3, 4}> ()
    r = Mul (q, d)
    t = If (b) <
      then_branch = yes () => (float[4] u) { u0 = Relu (r)  u = Tanh (u0) },
      else_branch = no () => (float[4] v) { v0 = Relu (r)  v = Exp (v0) }
    > }>
  m = Loop (n, k, l) <body = next (int64 j, bool and, float[4] p) => (bool too, float[4] o) {
    o = Relu (p)
    too = Identity (and)
  }>
  e = Mul (m, c)
  y = Relu (e)
}"""
FEEDS = {"x": np.ones(4, np.float32), "n": np.array(3), "b": np.array(True)}
"""Of the model `BODIES`, in which a Relu is the first node of four graphs."""

LEVELS = {
    "none": Level.ORT_DISABLE_ALL,
    "basic": Level.ORT_ENABLE_BASIC,
    "extended": Level.ORT_ENABLE_EXTENDED,
    "all": Level.ORT_ENABLE_ALL,
}
NAMINGS = {
    "all": lambda index, op: f"n{index}",
    "none": lambda index, op: "",
    "some": lambda index, op: "" if index % 2 else f"n{index}",
    "clashing": lambda index, op: "" if index % 2 else f"{op}_{index + 1}",
}
"""Names of nodes; of the last, some are what onnxruntime calls another, nameless node."""


def named(proto, naming):
    """Names the nodes of a model, and returns it."""
    for index, node in enumerate(node_protos(proto.graph)):
        node.name = NAMINGS[naming](index, node.op_type)
    return proto


def profiled(proto, feeds, folder, level="all", runs=5, parallel=False):
    """The profile that onnxruntime writes by itself; runs that fail are part of it."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = LEVELS[level]
    if parallel:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = 2
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for run in range(runs):
        with suppress(InvalidArgument):
            session.run(None, feeds(run) if callable(feeds) else feeds)
    return Path(session.end_profiling())


def written(events, path):
    """Writes events an entry a line, as onnxruntime does."""
    path.write_text("[" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    return path


def of_kernels(kernels, path, runs=4):
    """A profile by hand: name, operator, provider, µs and index of each kernel of a run."""
    events, now = [], 1000
    for _ in range(runs):
        begin = now
        for name, op, provider, took, *index in kernels:
            about = {"op_name": op, "provider": provider}
            about |= {"node_index": str(index[0])} if index else {}
            events.append(event("Node", f"{name}_kernel_time", now, took, about))
            now += took + 2
        events.append(event("Session", "SequentialExecutor::Execute", begin, now - begin))
        events.append(event("Session", "model_run", begin - 3, now - begin + 6))
        now += 30
    return written(events, path)


def event(category, name, ts, dur, args=None):
    """An event, as onnxruntime writes it."""
    return {
        "cat": category, "pid": 9, "tid": 9, "dur": dur, "ts": ts, "ph": "X", "name": name,
        "args": args or {},
    }  # fmt: skip


class Own:
    """The self time of nodes in each run but the first, by the events around each."""

    def __init__(self, path):
        events = [e for e in json.loads(path.read_text()) if e["cat"] == "Node"
                  or e["name"] in ("model_run", "SequentialExecutor::Execute")]  # fmt: skip
        self.starts = sorted(e["ts"] for e in events if e["name"] == "model_run")
        self.times = defaultdict(lambda: np.zeros(len(self.starts)))
        around = []
        for each in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            while around and each["ts"] >= around[-1]["ts"] + around[-1]["dur"]:
                around.pop()
            run = np.searchsorted(self.starts, each["ts"], side="right") - 1
            path = tuple(map(_of, [e for e in around if e["cat"] == "Node"]))
            if each["cat"] == "Node":
                self.times[(*path, _of(each))][run] += each["dur"]
            elif path:
                self.times[path][run] -= each["dur"]
            around.append(each)
        self.times = {key: times[1:] for key, times in self.times.items()}


def _of(node):
    return node["args"]["op_name"], int(node["args"]["node_index"])
