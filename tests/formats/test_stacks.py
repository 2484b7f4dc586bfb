"""Stacks: `.speedscope.json` by the published format, `.pprof` by its wire format and by pprof."""

import gzip
import json
import shutil
import subprocess

import pytest

from tests.formats.readers import decoded, numbers
from tracer.analyzers import views
from tracer.analyzers.views.trace.headline import sections
from tracer.errors import UsageError

TRACES = ("profile", "framework", "sums")


def expected(section):
    """(modules and node) -> time of a run's rows, from the node table."""
    rows = section.nodes[section.nodes["time_us"].fillna(0) > 0]
    stacks = {}
    for node, module, time in zip(
        rows["node"], rows["module"].fillna(""), rows["time_us"], strict=True
    ):
        path = module.split(".") if module else []
        names = (*(".".join(path[: i + 1]) for i in range(len(path))), node)
        stacks[names] = stacks.get(names, 0) + time
    return stacks


@pytest.mark.parametrize("name", TRACES)
def test_speedscope_has_a_sampled_profile_for_each_run(name, request):
    trace = request.getfixturevalue(name)
    document = json.loads(views.render(trace, "speedscope.json"))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(set(frame) <= {"name", "file", "line", "col"} and frame["name"] for frame in frames)
    assert len({tuple(frame.items()) for frame in frames}) == len(frames)
    for profile, section in zip(document["profiles"], sections(trace), strict=True):
        assert profile["type"] == "sampled" and profile["unit"] == "microseconds"
        assert profile["startValue"] == 0
        assert profile["endValue"] == pytest.approx(sum(profile["weights"]))
        assert len(profile["samples"]) == len(profile["weights"])
        shown = {}
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
            names = tuple(frames[number]["name"] for number in stack)
            shown[names] = shown.get(names, 0) + weight
        assert shown == pytest.approx(expected(section))
    assert {key: type(document[key]) for key in ("name", "exporter", "activeProfileIndex")} == {
        "name": str, "exporter": str, "activeProfileIndex": int,
    }  # fmt: skip


def test_speedscope_names_the_source_line(profile):
    frames = json.loads(views.render(profile, "speedscope.json"))["shared"]["frames"]
    found = next(frame for frame in frames if frame["name"] == "node_Conv_22")
    assert found == {"name": "node_Conv_22", "file": "models/lenet/torch_net.py", "line": 26}


def test_speedscope_refuses_a_trace_without_times(count):
    with pytest.raises(UsageError, match="needs times"):
        views.render(count, "speedscope.json")


class Pprof:
    """A profile, read by the field numbers of proto/profile.proto."""

    def __init__(self, content):
        fields = decoded(gzip.decompress(content))
        self.texts = [text.decode() for text in fields[6]]
        assert self.texts[0] == "" and len(set(self.texts)) == len(self.texts)
        self.types = [self._texts(decoded(each), 1, 2) for each in fields[1]]
        functions = {decoded(each)[1][0]: decoded(each) for each in fields[5]}
        self.places = {}
        for place in map(decoded, fields[4]):
            line = decoded(place[4][0])
            function = functions[line[1][0]]
            name, file = self.texts[function[2][0]], self.texts[(function[4] or [0])[0]]
            self.places[place[1][0]] = (name, file, (line[2] or [0])[0])
        self.samples = []
        for sample in map(decoded, fields[2]):
            stack = [self.places[number] for number in numbers(sample[1][0])]
            run = dict(self._texts(decoded(label), 1, 2) for label in sample[3])["run"]
            self.samples.append((stack[::-1], numbers(sample[2][0]), run))

    def _texts(self, message, *fields):
        return tuple(self.texts[message[field][0]] for field in fields)


@pytest.mark.parametrize("name", (*TRACES, "count"))
def test_pprof_has_time_macs_and_bytes_below_modules(name, request):
    trace = request.getfixturevalue(name)
    read = Pprof(views.render(trace, "pprof"))
    assert read.types == [("time", "nanoseconds"), ("macs", "count"), ("moved", "bytes")]
    totals = [sum(values[i] for _, values, _ in read.samples) for i in range(3)]
    nodes = trace.nodes
    assert totals[0] == pytest.approx(nodes["time_us"].sum() * 1000, abs=len(nodes))
    assert totals[1] == nodes["macs"].sum()
    assert totals[2] == nodes["bytes_read"].sum() + nodes["bytes_written"].sum()
    several = len(sections(trace)) > 1
    for stack, _, run in read.samples:
        assert (stack[0][0] == run) == several
        node = stack[-1]
        row = nodes[nodes["node"] == node[0]].iloc[0]
        module = row["module"] if isinstance(row["module"], str) else ""
        assert (stack[-2][0] if len(stack) > 1 + several else "") == module
        if isinstance(row["source"], str):
            assert f"{node[1]}:{node[2]}" == row["source"]


@pytest.mark.skipif(shutil.which("go") is None, reason="no go: apt-get install golang-go")
def test_gos_pprof_reads_it(profile, tmp_path):
    path = profile.save(tmp_path / "run.pprof")
    command = ["go", "tool", "pprof", "-top", "-unit=us", "-lines", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Type: time" in told
    assert "node_Conv_22 models/lenet/torch_net.py:26" in told
