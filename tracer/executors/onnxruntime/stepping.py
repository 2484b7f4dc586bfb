"""Runs inferences one after another whose outputs are inputs of the next: a cache fed back.

Values stay onnxruntime's own and are bound to the session before the clock starts: a step neither
copies the cache to Python and back, nor waits for Python to look at it.
"""

from collections.abc import Mapping
from typing import Any

import onnxruntime as ort

from tracer.executors.onnxruntime import feeding, interruption, node_names, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.executors.protocol import Stepped
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds
from tracer.support.timing import elapsed_us


class Stepper:
    """One session on a model; a call runs one inference."""

    def __init__(self, model: Model, settings: OrtSettings) -> None:
        self._model = model
        self._session = sessions.Factory(model, node_names.serialize(model), settings).open()
        self._names = [value.name for value in model.graph.output]
        self._options = interruption.options()

    def __call__(self, feeds: Feeds, carried: Mapping[str, Any]) -> Stepped:
        """Runs on arrays `feeds` and on `carried`, outputs of earlier calls by input name.

        Raises InputError for what onnxruntime refuses.
        """
        binding = self._session.io_binding()
        for name, value in {**feeding.values(self._model, feeds), **carried}.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._names:
            binding.bind_output(name)
        run = sessions.translated(
            self._model, lambda: self._session.run_with_iobinding(binding, self._options)
        )
        took = elapsed_us(run)
        return Stepped(took, dict(zip(self._names, binding.get_outputs(), strict=True)))

    @staticmethod
    def nbytes(value: ort.OrtValue) -> int:
        """Returns the bytes that a value of an output takes."""
        return int(value.tensor_size_in_bytes())
