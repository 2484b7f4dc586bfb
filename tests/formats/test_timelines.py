"""Timelines: `.perfetto.json` as the Trace Event Format says, `.pftrace` as Perfetto's protobuf."""

import json
from collections import defaultdict

import pytest

from tracer.analyzers import views
from tracer.analyzers.timing import wall
from tracer.analyzers.views.trace.headline import sections
from tracer.errors import UsageError

TRACES = ("profile", "framework", "sums")


class Events:
    """Replays begins and ends, as a viewer does: (process, thread) -> closed slices in order.

    A slice is (name, begin, end, names of the slices around it, args), in the file's unit.
    """

    def __init__(self):
        self.names, self.slices, self.counters = {}, defaultdict(list), defaultdict(list)
        self.open, self.last = defaultdict(list), {}

    def step(self, track, time):
        assert time >= self.last.get(track, 0), "time goes back on a track"
        self.last[track] = time

    def begin(self, track, time, name, args):
        self.step(track, time)
        around = tuple(each[0] for each in self.open[track])
        self.open[track].append([name, time, None, around, args])
        self.slices[track].append(self.open[track][-1])

    def end(self, track, time):
        self.step(track, time)
        self.open[track].pop()[2] = time

    def named(self, name, process=1):
        """The slices of a track of a process, by the track's name."""
        return next(
            self.slices[track]
            for track, (number, known) in self.names.items()
            if (number, known) == (process, name)
        )


def of_json(content):
    read, processes = Events(), {}
    for event in json.loads(content)["traceEvents"]:
        track = (event["pid"], event["tid"])
        if event["ph"] == "M":
            args = event["args"]
            if event["name"] == "process_name":
                processes[event["pid"]] = args["name"]
            elif event["name"] == "thread_name":
                read.names[track] = (event["pid"], args["name"])
        elif event["ph"] == "B":
            read.begin(track, event["ts"], event["name"], event["args"])
        elif event["ph"] == "E":
            read.end(track, event["ts"])
        else:
            assert event["ph"] == "C"
            read.counters[event["pid"], event["name"]].append((event["ts"], event["args"]["bytes"]))
    assert not any(read.open.values()), "a slice never ends"
    return read, processes


def of_protobuf(content):
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace, read, processes, parents = protos.Trace(), Events(), {}, {}
    trace.ParseFromString(content)
    kinds, units = protos.TrackEvent, set()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            described = packet.track_descriptor
            if described.HasField("process"):
                processes[described.process.pid] = described.process.process_name
                parents[described.uuid] = described.process.pid
            else:
                read.names[described.uuid] = (parents[described.parent_uuid], described.name)
                units |= {described.counter.unit} if described.HasField("counter") else set()
            continue
        event, time = packet.track_event, packet.timestamp / 1000
        if event.type == kinds.TYPE_SLICE_BEGIN:
            args = {a.name: getattr(a, a.WhichOneof("value")) for a in event.debug_annotations}
            read.begin(event.track_uuid, time, event.name, args)
        elif event.type == kinds.TYPE_SLICE_END:
            read.end(event.track_uuid, time)
        else:
            assert event.type == kinds.TYPE_COUNTER
            key = read.names[event.track_uuid]
            read.counters[key].append((time, event.counter_value))
    assert units <= {protos.CounterDescriptor.UNIT_SIZE_BYTES}
    assert not any(read.open.values())
    return read, processes


READERS = {"perfetto.json": of_json, "pftrace": of_protobuf}


@pytest.fixture(params=READERS)
def extension(request):
    if request.param == "pftrace":
        pytest.importorskip("perfetto")
    return request.param


@pytest.mark.parametrize("name", TRACES)
def test_a_mean_run_has_the_corrected_times_inside_their_modules(name, extension, request):
    trace = request.getfixturevalue(name)
    read, processes = READERS[extension](views.render(trace, extension))
    runs = [s for s in sections(trace) if s.nodes["time_us"].notna().any()]
    means = [number for number, title in processes.items() if "mean run" in title]
    assert len(means) == len(runs)
    for number, section in zip(means, runs, strict=True):
        slices = read.named("modules and nodes", number)
        times = section.nodes.set_index("node")["time_us"].dropna()
        nodes = [each for each in slices if "node" in each[4]]
        assert sorted(each[4]["node"] for each in nodes) == sorted(times.index)
        for shown, begin, end, around, values in nodes:
            assert end - begin == pytest.approx(times[values["node"]], abs=0.0011)
            assert shown == values["node"]
            assert ".".join(around) == values.get("module", "")
        (whole,) = read.named("runs", number)
        assert whole[2] - whole[1] == pytest.approx(
            max(wall(section.run)["mean"], times.sum()), abs=0.002
        )


def test_kernels_name_the_node_and_the_source_line_that_they_run(profile, extension):
    read, _ = READERS[extension](views.render(profile, extension))
    kernels = read.named("kernels on CPUExecutionProvider")
    rows = profile.nodes[profile.nodes["batch"] == 1].set_index("node")
    assert len(kernels) == len(profile.runs[0].kernels)
    for name, _, _, _, values in kernels:
        if "node" in values:
            assert name in rows["kernels"][values["node"]]
            assert values.get("source") == (rows["source"].to_dict()[values["node"]] or None)
    assert any(values.get("source", "").startswith("models/lenet/") for *_, values in kernels)


def test_recorded_runs_hold_their_kernels_as_the_profiler_wrote_them(profile, extension):
    read, processes = READERS[extension](views.render(profile, extension))
    number = next(n for n, title in processes.items() if "with profiler overhead" in title)
    run = profile.runs[0]
    inferences = read.named("runs", number)
    kernels = read.named("kernels on CPUExecutionProvider", number)
    assert [each[0] for each in inferences] == [f"run {i}" for i in range(1, len(inferences) + 1)]
    count = len(run.kernels)
    for position, (_, begin, end, _, values) in enumerate(inferences):
        own = kernels[position * count : (position + 1) * count]
        assert [each[0] for each in own] == [kernel.name for kernel in run.kernels]
        lengths = [each[2] - each[1] for each in own]
        assert lengths == pytest.approx(run.samples[position].tolist(), abs=0.0011)
        assert begin <= own[0][1] and own[-1][2] <= end
        assert values["profiled_us"] == run.instrumented_us[position]


def test_memory_is_a_counter_in_bytes(profile, extension):
    read, _ = READERS[extension](views.render(profile, extension))
    points = read.counters[1, "memory (bytes alive)"]
    begins = {
        each[4]["node"]: each[1] for each in read.named("modules and nodes") if "node" in each[4]
    }
    rows = profile.nodes[profile.nodes["batch"] == 1].set_index("node")["peak_bytes"].dropna()
    shown = dict(points[:-1])
    for node, begin in begins.items():
        if node in rows:
            assert shown[begin] == rows[node]
    assert points[-1][1] == 0 and [t for t, _ in points] == sorted(t for t, _ in points)


def test_a_trace_without_times_has_no_timeline(count, extension):
    with pytest.raises(UsageError, match="needs times"):
        views.render(count, extension)
