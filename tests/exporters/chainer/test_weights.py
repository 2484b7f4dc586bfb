import io
import zipfile

import numpy as np
import pytest

from tracer.errors import InputError
from tracer.exporters.chainer.compat import chainer_ready
from tracer.exporters.chainer.exporter import exporter

chainer_ready()
chainer = pytest.importorskip("chainer")
L = chainer.links


class Net(chainer.Chain):
    def __init__(self, inside=3):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(inside, 4, 3)
            self.bn = L.BatchNormalization(4)
            self.fc = L.Linear(None, 2)


def filled():
    net = Net()
    net.fc.W.initialize((2, 8))
    for _, parameter in net.namedparams():
        parameter.array[...] = np.random.default_rng(1).standard_normal(parameter.shape)
    net.bn.avg_mean[...] = 3
    return net


def test_an_npz_fills_parameters_averages_and_sizes_not_known_yet(tmp_path):
    source, target = filled(), Net()
    chainer.serializers.save_npz(tmp_path / "w.npz", source)
    exporter.load_weights(target, tmp_path / "w.npz", trust=False)
    for (name, wanted), (_, result) in zip(
        sorted(source.namedparams()), sorted(target.namedparams()), strict=True
    ):
        np.testing.assert_array_equal(result.array, wanted.array, err_msg=name)
    assert target.bn.avg_mean.tolist() == [3, 3, 3, 3]


def test_weights_that_do_not_fit_list_names_and_shapes(tmp_path):
    chainer.serializers.save_npz(tmp_path / "w.npz", filled())
    arrays = dict(np.load(tmp_path / "w.npz"))
    del arrays["bn/gamma"]
    np.savez(tmp_path / "w.npz", **arrays, extra=np.ones(3))
    with pytest.raises(InputError) as caught:
        exporter.load_weights(Net(inside=5), tmp_path / "w.npz", trust=False)
    message = str(caught.value)
    assert "1 missing: bn/gamma [4]" in message
    assert "1 unexpected: extra [3]" in message
    assert "conv/W is [4, 3, 3, 3], the model has [4, 5, 3, 3]" in message


def test_a_pickle_inside_an_npz_is_not_read_without_trust(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    np.savez(tmp_path / "w.npz", **{"conv/W": np.array(Bomb(), dtype=object)})
    with pytest.raises(InputError, match="--trust"):
        exporter.load_weights(Net(), tmp_path / "w.npz", trust=False)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"no archive at all"])
def test_a_file_that_is_no_npz_is_named(tmp_path, content):
    (tmp_path / "w.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"w\.npz: .*not an \.npz file"):
        exporter.load_weights(Net(), tmp_path / "w.npz", trust=False)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.npz: no such file"):
        exporter.load_weights(Net(), tmp_path / "gone.npz", trust=False)


def test_one_array_and_a_zip_of_something_else_are_refused(tmp_path):
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(InputError, match=r"one\.npy: one array.*save_npz"):
        exporter.load_weights(Net(), tmp_path / "one.npy", trust=False)
    with zipfile.ZipFile(tmp_path / "w.npz", "w") as archive:
        archive.writestr("readme.txt", "no array")
    with pytest.raises(InputError, match=r"w\.npz: not an \.npz file: it has 'readme.txt'"):
        exporter.load_weights(Net(), tmp_path / "w.npz", trust=False)


def test_an_array_that_expands_is_refused_by_its_header(tmp_path):
    chainer.serializers.save_npz(tmp_path / "w.npz", filled())
    header = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(header, described)
    with zipfile.ZipFile(tmp_path / "w.npz", "a") as archive:
        archive.writestr("extra.npy", header.getvalue())
    with pytest.raises(InputError, match=r"1 unexpected: extra \[1099511627776\]"):
        exporter.load_weights(Net(), tmp_path / "w.npz", trust=False)
