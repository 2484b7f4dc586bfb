"""The exporter of Chainer models, and of weights; it imports Chainer when it converts one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from tracer import limits
from tracer.errors import InputError, refusing
from tracer.exporters import records
from tracer.exporters.chainer import compat

_SAVE = "Write one: chainer.serializers.save_npz(file, model)."


@contextmanager
def _opened(path: Path, *, trust: bool) -> Iterator[NpzFile]:
    """Opens the archive; what is wrong with it raises InputError, also while it is read."""
    pickled = "Unpickling runs code: give --trust if you know who wrote it, or save_npz again."
    what = "not an .npz file" if trust else "holds pickled objects, or is not an .npz file"
    with refusing(lambda why: InputError(f"{path}: {what} ({why})", "" if trust else pickled)):
        archive = np.load(path, allow_pickle=trust)
        if not isinstance(archive, NpzFile):
            raise InputError(f"{path}: one array, not an .npz file of a model's weights", _SAVE)
        with archive:
            yield archive


class _Exporter:
    """See `tracer.exporters.records.Exporter`."""

    name = "chainer"

    def prepare(self) -> None:
        compat.chainer_ready()

    def claims(self, model: object) -> bool:
        return records.inherits(model, "chainer", "Link")

    def convert(
        self, model: object, inputs: Sequence[records.InputSpec], options: records.ExportOptions
    ) -> records.Conversion:
        from tracer.exporters.chainer.conversion import convert

        return convert(model, inputs, options)

    def run(self, model: Any, arrays: records.Arrays) -> list[NDArray[Any]]:
        from tracer.exporters.chainer.trace import run

        return run(model, arrays)

    def load_weights(self, model: Any, path: Path, *, trust: bool) -> None:
        """Fills a Chainer link from `path`; arrays of objects, which are pickles, need `trust`.

        A parameter without a shape takes the shape in the file. Raises InputError if the file is no
        npz or does not fit.
        """
        records.check_exists(path)
        chainer = compat.load()
        with _opened(path, trust=trust) as archive:
            # the headers alone are read: a small file may expand a thousandfold
            stored: dict[str, tuple[int, ...]] = {}
            assert archive.zip is not None
            for name, member in zip(archive.files, archive.zip.namelist(), strict=True):
                if not member.endswith(".npy"):
                    what = f"{path}: not an .npz file: it has '{member}', no array"
                    raise InputError(what, _SAVE)
                with archive.zip.open(member) as stream:
                    if npy.read_magic(stream) != (1, 0):
                        raise ValueError(f"'{name}' has an unknown version")
                    stored[name], _, dtype = npy.read_array_header_1_0(stream)
                if dtype.hasobject and not archive.allow_pickle:
                    raise ValueError(f"'{name}' holds pickled objects")
            serializer = chainer.serializers.DictionarySerializer()
            serializer.save(model)  # as `save_npz` does, batch statistics too
            expected = {
                # a parameter without a shape, None, takes the file's; () if the file has none
                name: stored.get(name, ()) if array.dtype == object else array.shape
                for name, array in serializer.target.items()
            }
            records.check_fit(path, stored, expected)
            for shape in stored.values():
                limits.allow(shape, np.float64)
            arrays = {name: archive[name] for name in archive.files}
        chainer.serializers.NpzDeserializer(arrays).load(model)


exporter = _Exporter()
