"""What one side measured in a session of turns, before anything is subtracted."""

from dataclasses import dataclass, field

from tracer.support.types import FloatArray


@dataclass(frozen=True, slots=True)
class Turns:
    """Times of runs in µs; the runs of a turn lie together, between turns of other sides.

    `profiled_us` (turns × runs) are recorded runs, and `samples_us` (turns × runs × kernels) the
    own times that the profiler tells of their `kernels`, which are listed by name. `wall_us` (runs)
    are undisturbed runs before the first turn, and `empty_us` runs without nodes, if measured.
    """

    kernels: tuple[str, ...]
    samples_us: FloatArray = field(repr=False)
    profiled_us: FloatArray = field(repr=False)
    wall_us: FloatArray = field(repr=False)
    empty_us: FloatArray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """Returns the number of turns."""
        return len(self.samples_us)

    def first(self, count: int) -> "Turns":
        """Returns the first turns."""
        samples, profiled = self.samples_us[:count], self.profiled_us[:count]
        return Turns(self.kernels, samples, profiled, self.wall_us, self.empty_us)
