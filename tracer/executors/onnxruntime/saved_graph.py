"""The optimised graph that a session saved: its tensors, its kernels and nodes run alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tracer.errors import LimitError
from tracer.executors.onnxruntime import (
    fusion_check,
    kernel_models,
    recording,
    replay,
    sessions,
)
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import footprint
from tracer.graph.model import Model, Node
from tracer.inputs.feedset import FeedSet
from tracer.limits import Limits, size_text
from tracer.records import providers
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel
from tracer.support.progress import Progress
from tracer.support.temporary import TemporaryFolder
from tracer.support.types import FloatArray

_ELEMENT_BYTES = 8
"""All tensors are held at once and compared as float64."""


class Folder(TemporaryFolder):
    """The folder of a saved graph and of profiles."""

    @property
    def graph(self) -> Path:
        """The file of the optimised graph; its weights lie in a file beside it."""
        return self.path / "optimized.onnx"


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """The graph in `folder` that onnxruntime runs for `model` with `settings`."""

    model: Model
    settings: OrtSettings
    kernels: tuple[Kernel, ...]
    folder: Folder

    @property
    def comparable(self) -> bool:
        """Whether the graph is optimised for the CPU, on which its tensors can be computed."""
        return providers.is_cpu(self.settings.provider)

    def match_tensors(
        self, feed_sets: Sequence[FeedSet], limits: Limits, progress: Progress
    ) -> Evidence:
        """Returns which tensors of the model equal each tensor of the graph on all `feed_sets`.

        `limits` are limits of the interpreter; the tensors of the graph may together take as much
        memory again. Raises LimitError beyond that, and the errors of onnxruntime and interpreter.
        """
        types = [kind for kernel in self.kernels for kind in kernel.output_types]
        held = len(feed_sets) if footprint.is_large(self.model) else 1
        need = held * sum(_ELEMENT_BYTES * (kind.size or 0) for kind in types)
        most = limits.in_proportion(None).live_bytes or 0
        if need > most:
            raise LimitError(
                f"all tensors of the optimised graph take {size_text(need)} at once, and at most "
                f"{size_text(most)} are compared",
                "Set a smaller batch or dim.",
            )
        feeds = [feedset.feeds for feedset in feed_sets]
        threads = self.settings.threads
        return fusion_check.evidence(
            self.model, self.folder.graph, feeds, threads, limits, progress, self.settings.register
        )

    def replay(self, feedset: FeedSet, kernels: Sequence[Kernel], progress: Progress) -> FloatArray:
        """Returns the time of one call of each kernel, run alone, as a share of a whole run."""
        pieces = kernel_models.cut(self.model, self.folder.graph, feedset.feeds, kernels)
        return replay.shares(self.model, pieces, feedset, self.settings, progress)

    def replay_unfused(
        self, feedset: FeedSet, nodes: Sequence[Node], progress: Progress
    ) -> FloatArray:
        """Returns the time of one call of each node, run alone, as a share of a whole run."""
        pieces = kernel_models.cut_unfused(self.model, feedset.feeds, nodes)
        return replay.shares(self.model, pieces, feedset, self.settings, progress)

    def unoptimized_kernels(self, feedset: FeedSet) -> tuple[Kernel, ...]:
        """Returns the kernels of one run of the model without optimisation, on the CPU.

        There every node is a kernel, whatever other providers compile.
        """
        settings = replace(self.settings, optimization="none", provider="cpu", provider_options={})
        folder = Folder()
        with sessions.running(self.model):
            return recording.record_once(self.model, feedset, settings, folder.graph)
