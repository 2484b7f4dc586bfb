"""A prefill of S tokens is S steps of one: in the interpreter, in onnxruntime, and across both."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tracer.graph.loading import open_model
from tracer.inputs.decoder import recognise
from tracer.inputs.request import Step
from tracer.interpreter.interpreter import Interpreter

FLOATS, ROUNDED = 2e-5, 2e-2
"""Errors in shares of the largest value: sums of some hundred terms in other orders, and codes of
activations between two, which any such difference may turn into the other one."""
MODELS = {
    "llama": ("llama/llama.onnx", None, FLOATS),
    "llama in 4 bits, float sums": ("llama/llama.int4.onnx", 0, FLOATS),
    "llama in 4 bits, rounded activations": ("llama/llama.int4.onnx", 4, ROUNDED),
    "gpt": ("gpt/gpt.onnx", None, FLOATS),
}
TOKENS = 9
TEXT = b"The sea was calm and the wind had fallen."


class Model:
    """A shipped decoder, and both that run it: functions of feeds that return outputs by name."""

    def __init__(self, file, level, tolerance):
        proto, self.tolerance = onnx.load(Path("models") / file), tolerance
        for node in proto.graph.node if level is not None else ():
            for attribute in node.attribute:
                if attribute.name == "accuracy_level":
                    attribute.i = level
        self.decoder = recognise(open_model(proto))
        self.names = [value.name for value in self.decoder.model.graph.output]
        interpreter = Interpreter(proto)
        session = ort.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self.runners = {
            "interpreter": lambda feeds: interpreter.run(self.names, feeds),
            "onnxruntime": lambda feeds: session.run(self.names, feeds),
        }

    def outputs(self, runner, lengths):
        """Logits [1, S, V] of the text read in pieces of these lengths, and the cache after it."""
        ids = np.frombuffer(TEXT, np.uint8)[None].astype(np.int64)
        cache, logits, past = self.decoder.empty(1), [], 0
        for new in lengths:
            step = Step(1, new, past)
            feeds = {self.decoder.tokens: ids[:, past : past + new], **self.decoder.lengths(step)}
            results = self.runners[runner]({**feeds, **cache})
            found = dict(zip(self.names, results, strict=True))
            cache = {entry.past: found[entry.present] for entry in self.decoder.cache}
            logits.append(found["logits"])
            past += new
        return [np.concatenate(logits, axis=1), *cache.values()]

    def agree(self, ours, theirs):
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=0, atol=self.tolerance * np.abs(b).max())


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def model(request):
    return Model(*request.param)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("runner", ["interpreter", "onnxruntime"])
@pytest.mark.parametrize("lengths", [[1] * TOKENS, [4, 1, 3, 1]], ids=["steps", "pieces"])
def test_a_prefill_is_its_steps(model, runner, lengths):
    assert sum(lengths) == TOKENS
    whole = model.outputs(runner, [TOKENS])
    model.agree(model.outputs(runner, lengths), whole)
    assert np.abs(whole[0]).max() > 1  # a trained model tells bytes apart


@pytest.mark.one_in(3)
@pytest.mark.parametrize("lengths", [[TOKENS], [1] * TOKENS], ids=["prefill", "steps"])
def test_the_interpreter_and_onnxruntime_agree_in_both_phases(model, lengths):
    model.agree(model.outputs("interpreter", lengths), model.outputs("onnxruntime", lengths))
