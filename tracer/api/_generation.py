"""Generates with a decoder: a prefill, and steps that read the cache of the step before, timed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tracer.containment import activity, signals
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.executors.registry import Step as Stepping
from tracer.graph.model import Model
from tracer.inputs.decoder import Decoder, PhaseRequest, recognise
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import Phase, Phases, Step
from tracer.records.trace import CacheSize, Generated, Generation, Trace
from tracer.text import PREFILL


@dataclass
class Phased:
    """The phases of one model: their feeds, and the whole generations that were timed so far."""

    decoder: Decoder
    phases: Phases
    executor: registry.SteppingExecutor[Model, FeedSet, Any]
    seed: int
    progress: activity.Progress
    measured: list[Generated] = field(default_factory=list)

    @classmethod
    def of(
        cls, model: Model, phases: Phases, executor: str, seed: int, progress: activity.Progress
    ) -> "Phased":
        """Returns the phases of `model`. Raises ModelError where it is no decoder with a cache."""
        runtime = registry.find_stepping(executor)
        return cls(recognise(model), phases, runtime, seed, progress)

    def request(self, batch: int | None, settings: Any, phase: Phase) -> PhaseRequest:
        """Returns the request for the feeds of `phase`; before the prefill, times generations."""
        if phase.name == PREFILL:
            generated = self.measure(settings, batch)
            if generated.prefill_us:  # none if a signal ended the first of them
                self.measured.append(generated)
        model = self.decoder.model
        return PhaseRequest(model, batch=batch, seed=self.seed, decoder=self.decoder, phase=phase)

    def measure(self, settings: Any, batch: int | None) -> Generated:
        """Returns the times of whole generations on random tokens.

        `settings` say how often, as of runs: the first generation is not counted. Raises the errors
        of the executor.
        """
        decoder, phases = self.decoder, self.phases
        entries, steps = batch or decoder.batch or 1, phases.decode or 0
        prompt = Step(entries, phases.prefill, 0)
        whole = Step(entries, phases.prefill + steps, 0)
        tokens = decoder.feeds(whole, self.seed)[decoder.tokens]
        prefill_us: list[float] = []
        step_us: list[tuple[float, ...]] = []
        with self.executor.stepping(decoder.model, settings) as step:
            sizes = generate(decoder, step, tokens, prompt, lambda us: None)
            seconds = 0.0
            while missing := settings.missing_runs(len(step_us), seconds):
                if signals.ending():
                    break
                times: list[float] = []
                self.progress(len(step_us), len(step_us) + missing, "generating")
                sizes = generate(decoder, step, tokens, prompt, times.append)
                prefill_us.append(times[0])
                step_us.append(tuple(times[1:]))
                seconds = (sum(prefill_us) + sum(map(sum, step_us))) / 1e6
            allocated = sum(map(step.nbytes, sizes.values()))
        return Generated(
            entries, getattr(settings, "threads", None) or None,
            getattr(settings, "optimization", None), tuple(prefill_us), tuple(step_us), allocated,
        )  # fmt: skip

    def with_generations(self, trace: Trace) -> Trace:
        """Returns `trace` with the cache and the generations."""
        known = planned(self.decoder, self.phases)
        return replace(trace, generation=replace(known, measured=tuple(self.measured)))


def refuse_other_inputs(dims: Mapping[str, int] | None, feeds: object) -> None:
    """Raises UsageError for inputs or sizes beside phases, which set both."""
    if dims or feeds:
        named = "dims" if dims else "inputs"
        raise UsageError(
            f"{named} are set beside the phases of a language model, which set sizes and values",
            "Leave out one of them; --batch sets the batch.",
        )


def planned(decoder: Decoder, phases: Phases) -> Generation:
    """Returns what is known of the phases before anything runs."""
    first = decoder.cache[0]
    cache = CacheSize(decoder.layers, *first.heads_and_size, first.dtype, decoder.cache_bytes(1, 1))
    return Generation(phases.prefill, phases.decode, cache)


def generate(
    decoder: Decoder,
    step: Stepping,
    tokens: Any,
    prompt: Step,
    receive: Callable[[float], object],
    outputs: Callable[[Mapping[str, Any]], object] = lambda values: None,
) -> Mapping[str, Any]:
    """Runs the prefill of `prompt`, then a step for each further one of `tokens` [B, S, …].

    `receive` gets the time of each inference in µs, `outputs` the values that it returned. Returns
    the cache after the last, by output.
    """
    past: Mapping[str, Any] = {}
    feeds = decoder.empty(prompt.batch)
    later = (Step(prompt.batch, 1, past) for past in range(prompt.total, tokens.shape[1]))
    for at in (prompt, *later):
        part = tokens[:, at.past : at.total]
        done = step({**feeds, decoder.tokens: part, **decoder.lengths(at)}, past)
        receive(done.us)
        outputs(done.outputs)
        activity.step()
        feeds, past = {}, {each.past: done.outputs[each.present] for each in decoder.cache}
    return past
