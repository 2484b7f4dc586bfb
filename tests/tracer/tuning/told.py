"""A bench that is told the times, a clock that it advances, and findings on a machine of choice."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np

import tracer
from tracer.executors.settings import OrtSettings, SessionSettings
from tracer.graph import loading
from tracer.inputs.request import make_feeds
from tracer.tuning.changes import Findings
from tracer.tuning.setup import Machine, Setup

CPU = "CPUExecutionProvider"


def machine(cpus=4, flags=("avx2", "avx512_vnni"), architecture="x86_64", providers=(CPU,)):
    """A processor with these cores and instructions."""
    return Machine("told", architecture, cpus, cpus, frozenset(flags), providers, "1.0")


def findings(proto, *, on=None, goal="latency", dims=None, batch=None, session=None, **settings):
    """What a short profile of a model tells; times are those of this machine."""
    model = loading.from_proto(proto)
    feedset = make_feeds(model, dims=dims, batch=batch)
    trace = tracer.profile(
        proto, runs=2, warmup=1, dims=dims, batch=batch, threads=1,
        optimization=settings.get("optimization", "all"), confirm=False,
    )  # fmt: skip
    chosen = OrtSettings(session=session or SessionSettings(), **settings)
    return Findings(Setup(model, feedset, chosen), trace, on or machine(), goal)


class Bench:
    """Setups take `cost` µs, a little more or less in each session; sessions take 10 ms.

    `outputs` and `memory` are functions of a setup, `opens` and `probes` of this bench as well, as
    they may advance its clock. `stops` is called before each race.
    """

    def __init__(
        self, cost, seed=0, scatter=0.005, outputs=None, memory=None, opens=None, probes=None,
        stops=lambda bench: None,
    ):  # fmt: skip
        self.now, self.cost, self.scatter = 0.0, cost, scatter
        self.chance = random.Random(seed)
        outputs, memory = (
            outputs or (lambda _: [np.ones(3, np.float32)]),
            memory or (lambda _: 1 << 20),
        )
        self._opens = opens or (lambda bench, setup: outputs(setup))
        self._probes = probes or (lambda bench, setup: memory(setup))
        self._stops = stops
        self.raced = []

    def clock(self):
        return self.now

    def outputs(self, setup):
        return self._opens(self, setup)

    def memory(self, setup, seconds):
        return self._probes(self, setup)

    def race(self, setups, seconds, is_enough):
        self._stops(self)
        self.raced.append(len(setups))
        end, blocks = self.now + seconds, [[] for _ in setups]
        while True:
            drift = self.chance.gauss(0, 0.3)  # slow spells of the machine, which all sides share
            for setup, of_side in zip(setups, blocks, strict=True):
                us = self.cost(setup) * math.exp(drift + self.chance.gauss(0, self.scatter))
                of_side.append(np.full(3, us))
                self.now += 0.01
            if is_enough(blocks) or (self.now > end and len(blocks[0]) >= 3):
                return blocks


def timed(found, us=10.0):
    """The same findings, where every timed row took `us` µs, or as told by node."""
    nodes = found.trace.nodes.copy()
    is_timed = nodes["time_us"].notna()
    times = nodes["node"].map(us) if isinstance(us, dict) else float(us)
    for column in ("time_us", "time_us_raw", "time_us_ci95_low"):
        nodes[column] = nodes[column].mask(is_timed, times)
    nodes["time_share"] = nodes["time_us"] / nodes["time_us"].sum()
    return replace(found, trace=replace(found.trace, nodes=nodes))
