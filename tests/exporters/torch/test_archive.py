import json
import zipfile

import pytest

from tracer.api.export import export
from tracer.errors import InputError, ModelError, UsageError
from tracer.exporters.records import ExportOptions
from tracer.exporters.subject import load_source
from tracer.graph import loading

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)

    def forward(self, x):
        return torch.cat([x, x]) @ self.fc.weight.T


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "net.pt2"
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    exported = torch.export.export(Net().eval(), (torch.ones(2, 3),), dynamic_shapes=shapes)
    torch.export.save(exported, path)
    return path


def test_a_saved_program_is_exported_with_its_dynamic_batch(program, tmp_path):
    record = export(load_source(str(program)), tmp_path / "m.onnx")
    assert (record.dynamic_batch, record.batches) == (True, (2, 4))
    model = loading.load(tmp_path / "m.onnx")
    assert "batch" in str(model.inputs[0].type)
    assert all(node.module is not None for node in model.nodes)


def test_shapes_are_not_to_be_given_twice(program, tmp_path):
    with pytest.raises(UsageError, match="has its shapes in it"):
        export(load_source(str(program)), tmp_path / "m.onnx", input_shape=(2, 3))


def test_a_dynamic_batch_cannot_be_fixed(program, tmp_path):
    options = ExportOptions(dynamic_batch=False)
    with pytest.raises(
        UsageError, match=r"dynamic batch, which options\.dynamic_batch=False cannot fix"
    ):
        export(load_source(str(program)), tmp_path / "m.onnx", options=options)


@pytest.mark.parametrize("layer", [torch.nn.Dropout(), torch.nn.BatchNorm1d(3)])
def test_a_program_that_was_exported_in_training_mode_says_so(tmp_path, layer):
    exported = torch.export.export(layer.train(), (torch.ones(2, 3),))
    with pytest.raises(ModelError, match=r"exported in training mode: aten\..*model\.eval\(\)"):
        export(exported, tmp_path / "m.onnx")


def test_weights_are_not_to_be_given_twice(program, tmp_path):
    (tmp_path / "w.pt").touch()
    with pytest.raises(UsageError, match="has its weights in it"):
        load_source(str(program), weights=tmp_path / "w.pt")


def altered(program, target, change):
    """A copy of the archive whose JSON files went through `change`."""
    with zipfile.ZipFile(program) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith(".json"):
                content = change(content.decode()).encode()
            copy.writestr(name, content)
    return target


def test_a_size_that_is_code_is_refused_and_not_run(program, tmp_path):
    bad = altered(
        program,
        tmp_path / "bad.pt2",
        lambda text: text.replace("Symbol('", "__import__('os').system('touch "),
    )
    with pytest.raises(InputError, match=r"a size is not arithmetic.*--trust"):
        load_source(str(bad))


def test_a_pickled_tensor_is_refused(program, tmp_path):
    def pickled(text):
        return json.dumps(mark(json.loads(text)))

    def mark(tree):
        if isinstance(tree, dict):
            return {k: True if k == "use_pickle" else mark(v) for k, v in tree.items()}
        return [mark(v) for v in tree] if isinstance(tree, list) else tree

    with pytest.raises(InputError, match=r"pickled tensor.*--trust"):
        load_source(str(altered(program, tmp_path / "bad.pt2", pickled)))


def test_a_pickled_object_is_refused(program, tmp_path):
    bad = altered(program, tmp_path / "bad.pt2", str)
    with zipfile.ZipFile(bad, "a") as archive:
        archive.writestr("net/data/constants/opaque_obj_0", b"\x80\x04.")
    with pytest.raises(InputError, match=r"pickled object.*--trust"):
        load_source(str(bad))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"no archive"])
def test_a_file_that_is_no_program_is_named(tmp_path, content):
    (tmp_path / "p.pt2").write_bytes(content)
    with pytest.raises(InputError, match=r"p\.pt2: not an exported program"):
        load_source(str(tmp_path / "p.pt2"))
