"""Runs without the profiler, in a session that leaves the memory while the profiled one is open.

A session holds the weights of its own: onnxruntime packs them anew for its kernels. Small models
keep both sessions open, as opening takes time; large ones would need their weights twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tracer.executors.onnxruntime import feeding, sessions
from tracer.graph import footprint
from tracer.inputs.feedset import FeedSet


@dataclass
class PlainSession:
    """Opens a session for the first inference, and again for the first one after it was closed."""

    factory: sessions.Factory
    feedset: FeedSet
    session: Any = field(default=None, repr=False)
    _run: Callable[[], list[object]] | None = field(default=None, repr=False)

    @property
    def gives_way(self) -> bool:
        """Whether it must be closed while another session on the model is open."""
        return footprint.is_large(self.factory.model)

    def run(self) -> list[object]:
        """Runs one inference and returns the outputs."""
        if self._run is None:
            self.session = self.factory.open()
            self._run = feeding.prepared(self.factory, self.session, self.feedset.feeds)
        return self._run()

    def close(self) -> None:
        """Frees the session."""
        self._run = self.session = None
