import collections
import pickle

import pytest

from tracer.errors import InputError
from tracer.exporters.torch.exporter import exporter

torch = pytest.importorskip("torch")
nn = torch.nn


def net(width=4):
    return nn.Sequential(collections.OrderedDict(conv=nn.Conv2d(3, width, 3), bn=nn.BatchNorm2d(4)))


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.values(), b.values(), strict=True))


@pytest.mark.parametrize("wrap", [dict, lambda state: {"epoch": 3, "state_dict": state}])
def test_a_state_dict_fills_the_model(tmp_path, wrap):
    source, target = net(), net()
    torch.save(wrap(source.state_dict()), tmp_path / "w.pt")
    exporter.load_weights(target, tmp_path / "w.pt", trust=False)
    assert equal(target.state_dict(), source.state_dict())


def test_safetensors_fill_the_model(tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    source, target = net(), net()
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    exporter.load_weights(target, tmp_path / "w.safetensors", trust=False)
    assert equal(target.state_dict(), source.state_dict())


def test_weights_that_do_not_fit_list_names_and_shapes(tmp_path):
    state = net(width=5).state_dict()
    del state["bn.bias"]
    state["extra"] = torch.ones(2)
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(InputError) as caught:
        exporter.load_weights(net(), tmp_path / "w.pt", trust=False)
    message = str(caught.value)
    assert "1 missing: bn.bias [4]" in message
    assert "1 unexpected: extra [2]" in message
    assert "2 of another shape: conv.weight is [5, 3, 3, 3], the model has [4, 3, 3, 3]" in message


def test_a_pickled_module_needs_trust(tmp_path):
    source, target = net(), net()
    torch.save(source, tmp_path / "w.pt")
    with pytest.raises(InputError, match="--trust"):
        exporter.load_weights(target, tmp_path / "w.pt", trust=False)
    exporter.load_weights(target, tmp_path / "w.pt", trust=True)
    assert equal(target.state_dict(), source.state_dict())


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 cut", b"neither format", b"junk\n", b"e" * 99]
)
def test_a_file_of_neither_format_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        exporter.load_weights(net(), tmp_path / name, trust=False)


def test_a_plain_pickle_is_refused_without_a_word_of_torchs(tmp_path, recwarn):
    (tmp_path / "w.pkl").write_bytes(pickle.dumps({"a": object()}))
    with pytest.raises(InputError, match=r"w\.pkl"):
        exporter.load_weights(net(), tmp_path / "w.pkl", trust=False)
    assert [str(warning.message) for warning in recwarn] == []
