"""Takes the pictures of docs/gallery.md: `python -m tests.report.screenshots docs`.

Each is a report of a shipped model, made, opened in a browser and photographed. Give names of
pictures after the folder to take only those.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tracer
from tests.report.browser import Browser, missing, opened
from tracer.host import peaks
from tracer.inputs.request import Samples
from tracer.records.result import Result

FLOAT = Path("models/lenet/lenet.onnx")
TRANSFORMER = Path("models/transformer/transformer.onnx")
INT8 = Path("models/lenet/lenet.int8.onnx")
RESNET = Path("models/resnet_cifar/resnet20.onnx")


@dataclass(frozen=True)
class Picture:
    """A report, the window in which it is seen, and what is selected there."""

    result: Callable[[], Result]
    width: int = 1400
    height: int = 1000
    fragment: str = ""
    dark: bool = False


def _profile(model: Path) -> Result:
    return tracer.profile(model, runs=300, threads=1, peaks=peaks)


def _sums() -> Result:
    return tracer.interpret(INT8, accumulator=18, inputs=Samples("digits"), batch=60)


def _sides() -> Result:
    folder = RESNET.parent
    sides = [str(folder / f"resnet20{kind}.onnx") for kind in ("", ".int8")]
    return tracer.compare(sides, threads=[1])


PICTURES = {
    "gallery-profile": Picture(lambda: _profile(RESNET)),
    "gallery-compare": Picture(_sides),
    "gallery-overflow": Picture(_sums, height=820),
    "gallery-whatif": Picture(
        lambda: tracer.what_if(INT8, accumulator="16:23", data="digits"), height=900
    ),
    "gallery-quantize": Picture(lambda: tracer.quantize(FLOAT, "digits")),
    "gallery-narrow": Picture(
        lambda: tracer.narrow(INT8, bits="12:18:2", data="digits"), height=860
    ),
    "gallery-tune": Picture(lambda: tracer.tune(TRANSFORMER, max_seconds=60)),
    "gallery-dark": Picture(lambda: _profile(RESNET), fragment="#view=modules", dark=True),
    "gallery-phone": Picture(lambda: _profile(RESNET), 400, 844),
}
"""By the name of the file."""


def take(folder: Path, names: list[str]) -> None:
    """Write the pictures with these names into `folder`."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as place, opened() as driver:
        browser = Browser(driver)
        for name in names:
            picture, path = PICTURES[name], folder / f"{name}.png"
            report = picture.result().save(Path(place) / f"{name}.html")
            browser.open(report, picture.width, picture.height, picture.dark, picture.fragment)
            browser.picture(path)
            Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(
                path, optimize=True
            )


if __name__ == "__main__":
    if missing():
        sys.exit(missing())
    take(Path(sys.argv[1]), sys.argv[2:] or list(PICTURES))
