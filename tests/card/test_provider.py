"""What onnxruntime's CUDA provider did on a card; and the part's own steps, on the processor."""

import json
import re
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from tests.card import provider
from tests.card.parts import Skipped
from tracer.executors.onnxruntime import device_times
from tracer.executors.onnxruntime.profile_events import EXECUTE

NAMES = {
    "Relu": ["relu"],
    "Add": ["add"],
    "MaxPool": ["pool"],
    "Softmax": ["softmax"],
    "LayerNormalization": ["layernorm"],
    "Transpose": ["transpose", "geam", "memcpy"],
    "Gemm": ["gem", "nvjet", "splitk", "dot"],
    "MatMul": ["gem", "nvjet", "splitk", "dot"],
}
"""Operators, and parts of the names of kernels that onnxruntime, cuDNN or cuBLAS have for them."""


@pytest.fixture(scope="module")
def networks(card):
    return card("provider")["networks"]


def test_times_of_nodes_add_up_to_the_networks_time_without_launches(networks):
    """A CUDA graph launches once, so its time by CUDA events is that of its kernels and gaps."""
    large = networks["resnet20 batch 256"]
    assert large["device_us_by_graph_us"] == pytest.approx(1, abs=0.05)
    for name, record in networks.items():
        if "graph_us" in record["graph"]:
            assert record["device_us_by_graph_us"] < 1.05, name
        nodes = [row["device_us"] or 0 for row in record["profile"]["nodes"]]
        assert sum(nodes) == pytest.approx(record["profile"]["device_us"], rel=1e-6), name


def test_kernels_have_the_names_of_the_nodes_that_launched_them(networks):
    checked = 0
    for record in networks.values():
        launched = record["profile"]["launched"]
        for row in record["profile"]["nodes"]:
            if not row["device_us"] or row["op_type"] not in NAMES:
                continue
            own = row["kernels"].split("; ")
            names = " ".join(name.lower() for kernel in own for name in launched.get(kernel, []))
            assert any(part in names for part in NAMES[row["op_type"]]), (row, names)
            checked += 1
    assert checked > 50


def test_inputs_and_outputs_are_not_copied(networks):
    for name, record in networks.items():
        belongs_to_none = [note for note in record["profile"]["notes"] if "no node" in note]
        assert not belongs_to_none, name


def test_what_ran_on_the_processor_is_named_and_its_copies_are_rows(networks):
    profile = networks["copying batch 1"]["profile"]
    assert profile["on_cpu"] == ["pool"]
    assert sorted(copy["op_type"] for copy in profile["copies"]) == [
        "MemcpyFromHost", "MemcpyToHost",
    ]  # fmt: skip
    assert all(copy["device_us"] > 0 for copy in profile["copies"])
    said = re.compile(r"1 of \d kernels ran on the CPU, not on cuda: pool \(LpPool\)")
    assert any(map(said.match, profile["notes"]))


def test_outputs_are_those_of_the_processor(networks):
    """TF32 has 10 bits of mantissa: it is the default of the provider."""
    for record in networks.values():
        for exact, default in zip(*(record["outputs"][k] for k in ("use_tf32=0", "default")),
                                  strict=True):  # fmt: skip
            assert exact["difference"] < 1e-3 and default["difference"] < 2e-2


def test_on_the_processor_the_provider_equals_itself(tmp_path):
    path = provider.copying_network(tmp_path)
    assert provider.outputs(path, "cpu", 2)["default"] == [{"difference": 0, "equal": 1}]
    taken = provider.profile(path, "cpu", 2)
    assert {row["op_type"] for row in taken["nodes"]} >= {"Conv", "LpPool"}
    assert taken["launched"] == {} and taken["device_us"] is None


@pytest.mark.needs("torch")
def test_kernels_are_named_by_node(tmp_path, monkeypatch):
    """A kernel in the middle of each node of a run on this machine, named after its place."""
    path = provider.copying_network(tmp_path)
    record, join = device_times.record, device_times.join

    def record_kernels(run, runs, file):
        record(run, runs, file)
        document = json.loads(file.read_text())
        for place in range(3):
            call = {"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": place, "dur": 1,
                    "tid": 1, "args": {"correlation": place}}  # fmt: skip
            work = call | {"cat": "kernel", "name": f"kernel {place}", "dur": 5.0}
            document["traceEvents"] += [call, work]
        file.write_text(json.dumps(document))

    def join_in_nodes(events, zero_ns, launches, kernels):
        nodes = events.take(events.label > EXECUTE)
        at = np.sort(zero_ns + 1000 * nodes.ts[-3:] + 500 * nodes.dur[-3:])
        launches = replace(launches, start_ns=at, tid=nodes.tid[-3:])
        return join(events, zero_ns, launches, kernels)

    monkeypatch.setattr(device_times, "record", record_kernels)
    monkeypatch.setattr(device_times, "join", join_in_nodes)
    monkeypatch.setattr(device_times, "why_not", lambda: None)
    monkeypatch.setattr("tracer.records.environment.memory_of", lambda name: "cuda")
    taken = provider.profile(path, "cpu", 1)
    assert sorted(chain(*taken["launched"].values())) == ["kernel 0", "kernel 1", "kernel 2"]
    ran = [row["kernels"] for row in taken["nodes"] if row["kernels"]]
    assert set(taken["launched"]) <= set(ran)


def test_without_the_provider_the_part_is_skipped():
    with pytest.raises(Skipped, match="has no CUDA provider"):
        provider.load("cuda")
