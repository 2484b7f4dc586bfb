"""Recurrent links, whose states begin every run, against Chainer's own values."""

from collections import Counter

import numpy as np
import onnxruntime
import pytest

from tests.examples import at_night
from tests.exporters.chainer.test_exporter import chain
from tracer.api.export import export
from tracer.errors import ModelError
from tracer.exporters.chainer.compat import chainer_ready
from tracer.exporters.records import ExportOptions
from tracer.exporters.subject import Code, open_subject
from tracer.graph import loading

chainer_ready()
chainer = pytest.importorskip("chainer")
F, L = chainer.functions, chainer.links

FIXED = ExportOptions(dynamic_batch=False)


def values(outputs):
    """The outputs of a model as arrays."""
    flat = outputs if isinstance(outputs, tuple) else (outputs,)
    return [variable.array for variable in flat]


def check(model, path, x):
    """The file gives what Chainer gives from the state that the model has."""
    with chainer.using_config("train", False):
        expected = values(model(x))
    result = onnxruntime.InferenceSession(path).run(None, {"x": x})
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def two_steps(self, x):
    self.rnn(x[:, 0])
    return self.rnn(x[:, 1])


def stateless(self, x):
    c, h = self.rnn(None, None, x[:, 0])
    return self.rnn(c, h, x[:, 1])


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("link", "forward"),
    [
        (L.LSTM(4, 3), two_steps),
        (L.LSTM(None, 3), two_steps),
        (L.StatefulGRU(4, 3), two_steps),
        (L.StatefulMGU(4, 3), two_steps),
        (L.StatefulPeepholeLSTM(4, 3), two_steps),
        (L.StatefulZoneoutLSTM(4, 3), two_steps),
        (L.StatelessLSTM(4, 3), stateless),
    ],
)
def test_a_link_with_a_state_is_exported_from_it_for_any_batch(tmp_path, link, forward):
    model, path = chain(forward, rnn=link), tmp_path / "m.onnx"
    assert export(model, path, input_shape=(1, 2, 4)).dynamic_batch
    for batch in (1, 5):
        check(model, path, np.random.default_rng(batch).standard_normal((batch, 2, 4), np.float32))
        if hasattr(link, "reset_state"):
            assert link.h is not None  # the check called it
            link.reset_state()


def test_a_state_that_was_set_is_part_of_the_file_and_stays(tmp_path):
    model = chain(lambda self, x: self.rnn(x), rnn=L.LSTM(4, 3))
    x = np.random.default_rng(0).standard_normal((2, 4), np.float32)
    model(x)
    state = model.rnn.h, model.rnn.c
    export(model, tmp_path / "m.onnx", input_shape=(2, 4), options=FIXED)
    assert (model.rnn.h, model.rnn.c) == state
    check(model, tmp_path / "m.onnx", x)
    with pytest.raises(ModelError, match="batch"):
        export(model, tmp_path / "n.onnx", input_shape=(2, 4))


def test_an_lstm_of_images_and_of_sequences_that_end(tmp_path):
    def forward(self, x):
        cells = F.sum(F.reshape(x, (-1, 3, 4, 2, 2)), axis=2)
        c, _ = F.lstm(cells, x)
        return F.lstm(c, x[:1])

    model = chain(forward)
    export(model, tmp_path / "m.onnx", input_shape=(3, 12, 2, 2), options=FIXED)
    check(model, tmp_path / "m.onnx", np.random.default_rng(0).random((3, 12, 2, 2), np.float32))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("opset", at_night([11, 18], but=[18]))
@pytest.mark.parametrize(
    ("kind", "layers", "operator"),
    [(L.NStepLSTM, 1, "LSTM"), (L.NStepLSTM, 2, "LSTM"), (L.NStepBiLSTM, 2, "LSTM"),
     (L.NStepRNNTanh, 2, "Tanh"), (L.NStepBiGRU, 1, "Sigmoid")],
)  # fmt: skip
def test_sequences_of_one_length(tmp_path, kind, layers, operator, opset):
    rnn = kind(layers, 4, 3, 0.2)
    for parameter in rnn.params():
        parameter.array[...] = np.random.default_rng(0).standard_normal(parameter.shape)

    def forward(self, x):
        *states, ys = self.rnn(*[None] * (2 if operator == "LSTM" else 1), list(x))
        return (F.stack(ys), *states)

    model, path = chain(forward, rnn=rnn), tmp_path / "m.onnx"
    options = ExportOptions(dynamic_batch=False, opset=opset)
    export(model, path, input_shape=(3, 5, 4), options=options)
    check(model, path, np.random.default_rng(1).standard_normal((3, 5, 4), np.float32))
    nodes = loading.load(path).nodes
    counts = Counter(node.op_type for node in nodes)
    assert counts[operator] == layers if operator == "LSTM" else counts[operator] > layers
    modules = {node.module for node in nodes if node.op_type == operator}
    assert modules <= {"rnn", "rnn.0"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", [L.NStepLSTM, L.NStepBiLSTM, L.NStepGRU, L.NStepRNNReLU])
def test_sequences_of_several_lengths(tmp_path, kind):
    def forward(self, x):
        states = [None] * (2 if "LSTM" in kind.__name__ else 1)
        *states, ys = self.rnn(*states, [x[0, :2], x[1], x[2, :2], x[3, :1]])
        return (F.concat(ys, axis=0), *states)

    model, path = chain(forward, rnn=kind(1, 4, 3, 0.0)), tmp_path / "m.onnx"
    export(model, path, input_shape=(4, 5, 4), options=FIXED)
    check(model, path, np.random.default_rng(0).standard_normal((4, 5, 4), np.float32))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("wrapped", [chainer.Variable, np.asarray])
def test_steps_of_any_batch(tmp_path, wrapped):
    """Where the sequences are cut by time, the batch is open."""

    def forward(self, x):
        zeros = wrapped(np.zeros((1, len(x), 3), np.float32))
        steps, ws, bs = F.separate(x, axis=1), self.rnn.ws, self.rnn.bs
        _, _, ys = F.n_step_lstm(1, 0.0, cx=zeros, hx=zeros, ws=ws, bs=bs, xs=steps)
        return F.stack(ys, axis=1)

    model, path = chain(forward, rnn=L.NStepLSTM(1, 4, 3, 0.0)), tmp_path / "m.onnx"
    assert export(model, path, input_shape=(2, 5, 4)).dynamic_batch
    operators = {node.op_type for node in loading.load(path).nodes}
    assert ("LSTM" in operators) == (wrapped is chainer.Variable)
    for batch in (1, 4):
        check(model, path, np.random.default_rng(batch).standard_normal((batch, 5, 4), np.float32))


@pytest.mark.nightly
def test_counting_takes_a_model_that_works_at_one_batch_and_says_so(tmp_path):
    (tmp_path / "net.py").write_text(
        "import chainer, chainer.functions as F, chainer.links as L\n"
        "class Net(chainer.Chain):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        with self.init_scope():\n"
        "            self.rnn = L.NStepLSTM(1, 4, 3, 0.0)\n"
        "    def forward(self, x):\n"
        "        return F.stack(self.rnn(None, None, list(x))[2])\n"
    )
    for _ in range(2):  # exported, and kept
        model = open_subject(Code(f"{tmp_path / 'net.py'}:Net", [(2, 5, 4)]))
        assert [node.op_type for node in model.nodes].count("LSTM") == 1
        assert any("the batch is that of the inputs" in note for note in model.notes)
