"""The phases of a language model: a prefill of many tokens, and decode steps of one token each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracer.errors import UsageError
from tracer.inputs.decoder import Decoder, Step
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import Request

PREFILL, DECODE = "prefill", "decode"


@dataclass(frozen=True, slots=True)
class Phase:
    """One inference of a phase: `new` tokens of each entry after `past` tokens in the cache."""

    name: str
    new: int
    past: int

    def step(self, batch: int) -> Step:
        """Returns the step of this phase for a batch size."""
        return Step(batch, self.new, self.past)


@dataclass(frozen=True, slots=True)
class Phases:
    """Which phases to look at: `prefill` tokens, then `decode` steps; `pasts` of single steps.

    Without `pasts`, the single step is the middle one of `decode`. Raises UsageError for steps
    without a prefill before them, and for pasts without steps.
    """

    prefill: int
    decode: int | None = None
    pasts: Sequence[int] = ()

    @classmethod
    def of(
        cls, prefill: int | None, decode: int | None, past: int | Sequence[int] | None
    ) -> Phases | None:
        """Returns the phases that arguments of a command name; None if they name none."""
        if prefill is None and decode is None and past is None:
            return None
        if prefill is None:
            raise UsageError(
                f"{'decode' if decode else 'past'} is set, and no prefill comes before it",
                "Set --prefill, the number of tokens of the prompt, as well.",
            )
        if past is not None and decode is None:
            raise UsageError(
                "past is set, and there are no decode steps", "Set --decode, their number, as well."
            )
        pasts = () if past is None else (past,) if isinstance(past, int) else tuple(past)
        return cls(prefill, decode, tuple(dict.fromkeys(pasts)))

    def each(self) -> tuple[Phase, ...]:
        """Returns the phases in their order: the prefill, then a decode step at each past."""
        prefill = Phase(PREFILL, self.prefill, 0)
        if self.decode is None:
            return (prefill,)
        pasts = self.pasts or (self.prefill + self.decode // 2,)
        return (prefill, *(Phase(DECODE, 1, past) for past in pasts))


@dataclass(frozen=True, slots=True)
class PhaseRequest(Request):
    """A request for random tokens and a random cache of one phase of a decoder."""

    decoder: Decoder | None = None
    phase: Phase | None = None

    def choices(self) -> Iterator[FeedSet]:
        """Yields the feeds of the phase; there are no other sizes to try."""
        yield self._fed(self.seed)

    def others(self, first: FeedSet) -> Sequence[FeedSet]:
        """Returns the feeds from the next seed."""
        return (self._fed(self.seed + 1),)

    def cut(self) -> PhaseRequest:
        """Returns the request as it is: its inputs are one inference."""
        return self

    def _fed(self, seed: int) -> FeedSet:
        assert self.decoder is not None and self.phase is not None
        batch = self.batch or self.decoder.batch or 1
        feeds = self.decoder.feeds(self.phase.step(batch), seed)
        return FeedSet(feeds, batch, (f"inputs are random tokens and caches, seed {seed}",))
