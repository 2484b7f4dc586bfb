"""Peak memory and speed of reading each kind of data set, for few and for many images.

    python -m benchmarks.streaming [--few 10000] [--many 100000] [--sources tar,parquet]

Writes pictures of 3x32x32 in every form, and reads each in a process of its own, 64 at a time, as
`tracer` does for a model. Memory should be flat: peak at `--many` ÷ peak at `--few` at most 1.1.
Last, each reads 64 images at the end of the many: a part should not read what comes before it.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._measure import machine

_BATCH, _CLASSES, _TAR = 64, 100, 10_000
_SHAPE = (3, 32, 32)
_DIFFERENT = 1000
"""Pictures that differ: encoding one for each image would take longer than all readings."""


def main() -> None:
    """Prints a line for each source; with --read reads one, for a process that is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        _read(*arguments.read)
        return
    print(machine())
    print(f"{'source':<14}{'MiB':>8}{'MiB':>8}{'ratio':>8}{'images/s':>11}{'last 64, s':>12}")
    for name in arguments.sources.split(","):
        with tempfile.TemporaryDirectory() as folder:
            _source(name, Path(folder), arguments.few, arguments.many)


def _source(name: str, folder: Path, few: int, many: int) -> None:
    specs = {}
    for count in (few, many):
        (folder / str(count)).mkdir()
        specs[count] = SOURCES[name](folder / str(count), count)
    small, large = _measured(specs[few], "all"), _measured(specs[many], "all")
    last = _measured(specs[many], "last")
    ratio = large["mib"] / small["mib"]
    speed = large["samples"] / large["seconds"]
    print(
        f"{name:<14}{small['mib']:8.0f}{large['mib']:8.0f}{ratio:8.2f}{speed:11,.0f}"
        f"{last['seconds']:12.3f}",
        flush=True,
    )


def _measured(spec: str, what: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.streaming", "--read", spec, what]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(answer.stdout)
    return measured


def _read(spec: str, what: str) -> None:
    """Prints what it takes to read all images of a data set, or the last 64 in a part."""
    import onnx.parser

    from tracer.graph import loading
    from tracer.inputs.datasets.opening import open_dataset

    text = "g (float[N,3,32,32] x) => (float[N,3,32,32] y) { y = Relu (x) }"
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> {text}')
    dataset = open_dataset(spec, loading.from_proto(proto))
    if what == "last":
        assert dataset.samples is not None
        dataset = dataset.part(dataset.samples - _BATCH, _BATCH)
    start = time.perf_counter()
    samples = sum(batch.size for batch in dataset.batches(_BATCH))
    seconds = time.perf_counter() - start
    print(json.dumps({"samples": samples, "seconds": seconds, "mib": _peak_mib()}))


def _peak_mib() -> float:
    """Returns the peak of this process: getrusage would give that of its parent, if larger."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _pixels(count: int) -> NDArray[np.uint8]:
    different = np.random.default_rng(0).integers(0, 256, (_DIFFERENT, *_SHAPE), np.uint8)
    return np.resize(different, (count, *_SHAPE))


def _pngs() -> list[bytes]:
    from PIL import Image

    files = []
    for pixels in _pixels(_DIFFERENT):
        stream = io.BytesIO()
        Image.fromarray(pixels.transpose(1, 2, 0)).save(stream, "PNG", compress_level=1)
        files.append(stream.getvalue())
    return files


def _archive(save: Callable[..., None]) -> Callable[[Path, int], str]:
    def write(folder: Path, count: int) -> str:
        save(folder / "set.npz", x=_pixels(count), labels=np.arange(count) % _CLASSES)
        return str(folder / "set.npz")

    return write


def _folder(folder: Path, count: int) -> str:
    """Writes images in the layout of ImageNet, in folders of 100 classes."""
    files = _pngs()
    for number in range(_CLASSES):
        (folder / "val" / f"n{number:08}").mkdir(parents=True)
    for number in range(count):
        inside = folder / "val" / f"n{number % _CLASSES:08}"
        (inside / f"ILSVRC2012_val_{number:08}.png").write_bytes(files[number % _DIFFERENT])
    return str(folder)


def _tars(folder: Path, count: int) -> str:
    """Writes samples in tars of 10,000, as WebDataset does by default."""
    files = _pngs()
    for start in range(0, count, _TAR):
        with tarfile.open(folder / f"part-{start // _TAR:03}.tar", "w") as tar:
            for number in range(start, min(start + _TAR, count)):
                label = str(number % _CLASSES).encode()
                for kind, data in (("png", files[number % _DIFFERENT]), ("cls", label)):
                    info = tarfile.TarInfo(f"{number:08}.{kind}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
                tar.members.clear()  # type: ignore[attr-defined]
    return str(folder / "part-*.tar")


def _parquet(folder: Path, count: int) -> str:
    """Writes one file with images as bytes, in row groups of 1,000 as on Hugging Face."""
    import pyarrow as pa
    from pyarrow import parquet

    files = _pngs()
    kind = pa.schema([("image", pa.struct([("bytes", pa.binary())])), ("label", pa.int64())])
    with parquet.ParquetWriter(folder / "set.parquet", kind) as writer:
        for start in range(0, count, _DIFFERENT):
            numbers = range(start, min(start + _DIFFERENT, count))
            rows = [{"bytes": files[number % _DIFFERENT]} for number in numbers]
            columns = {"image": rows, "label": [number % _CLASSES for number in numbers]}
            writer.write_table(pa.table(columns, kind))
    return str(folder / "set.parquet")


def _code(folder: Path, count: int) -> str:
    """Writes a file whose class makes each picture when it is asked for, in shards."""
    (folder / "samples.py").write_text(
        "import numpy as np\n\n\n"
        "class Samples:\n"
        f"    def __len__(self):\n        return {count}\n\n"
        "    def shard(self, i, n):\n"
        "        for k in range(i * len(self) // n, (i + 1) * len(self) // n):\n"
        f"            yield np.full({_SHAPE}, k % 256, np.uint8), k % {_CLASSES}\n"
    )
    return f"{folder}/samples.py:Samples"


def _test_data(folder: Path, count: int) -> str:
    """Writes test_data_set folders of 100 images."""
    from onnx import numpy_helper

    pixels = _pixels(_CLASSES).astype(np.float32)
    content = numpy_helper.from_array(pixels).SerializeToString()
    for number in range(count // _CLASSES):
        inside = folder / f"test_data_set_{number}"
        inside.mkdir()
        (inside / "input_0.pb").write_bytes(content)
    return str(folder)


SOURCES: dict[str, Callable[[Path, int], str]] = {
    "npz": _archive(np.savez),
    "npz-packed": _archive(np.savez_compressed),
    "test-data": _test_data,
    "images": _folder,
    "tar": _tars,
    "parquet": _parquet,
    "code": _code,
}

if __name__ == "__main__":
    main()
