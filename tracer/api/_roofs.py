"""The peaks that the runs of a profile are compared with, and what is wrong with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tracer import host
from tracer.api._assembly import Analyzed
from tracer.containment import signals
from tracer.records.environment import Peak, Peaks

_MEASURING_S = 6.0
"""Seconds that measuring the peaks of this machine may take while other programs run."""


@dataclass(slots=True)
class Roofs:
    """Peaks by number of threads, 0 for the default; `measure` returns them for this machine.

    A product that was faster than a peak proves it wrong. Then the peaks are measured again, once,
    and a peak that is still too low becomes the rate of the product. `notes` tell it. Nothing is
    measured for which the time limit leaves no time.
    """

    measure: Callable[[int], Peaks] | None
    known: dict[int, Peaks] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def under(self, threads: int, analyzed: Sequence[Analyzed]) -> Peaks | None:
        """Returns the peaks at `threads` threads, right for those of the runs that had as many.

        None where they are not measured.
        """
        has_time = signals.seconds_left() > _MEASURING_S
        is_known = threads in self.known or host.stored_peaks(threads) is not None
        if self.measure is None or not (has_time or is_known):
            return None
        shown = _highest([each for each in analyzed if (each.run.threads or 0) == threads])
        peaks = self.known.get(threads)
        if peaks is None:
            peaks = self.measure(threads)
            if has_time and peaks.raised(shown) is not peaks:
                self._note(peaks, shown, "so the peaks were measured again")
                peaks = self._again(peaks, threads)
        right = peaks.raised(shown)
        if right is not peaks:
            self._note(peaks, shown, "which is the peak now")
            host.correct(peaks, right)
        self.known[threads] = right
        return right

    def _again(self, stored: Peaks, threads: int) -> Peaks:
        assert self.measure is not None
        host.correct(stored, None)
        measured = self.measure(threads)
        better = measured.at_least(stored) if measured.is_busy else measured
        if better != measured:
            host.correct(measured, better)
        return better

    def _note(self, peaks: Peaks, shown: dict[str, Peak], consequence: str) -> None:
        for kind, peak in peaks.raised(shown).arithmetic.items():
            before = peaks.arithmetic[kind]
            if peak != before:
                reached = f"{peak.by} reached {peak.rate / 1e9:.3g} G operations/s"
                beaten = f"more than the {kind} peak of {before.rate / 1e9:.3g}"
                self.notes[f"{reached}, {beaten}, {consequence}"] = None


def _highest(analyzed: Sequence[Analyzed]) -> dict[str, Peak]:
    highest: dict[str, Peak] = {}
    for each in analyzed:
        for kind, peak in each.shown.items():
            if kind not in highest or peak.rate > highest[kind].rate:
                highest[kind] = peak
    return highest
