"""Takes the pictures of docs/report.md: `python -m tests.report.screenshots docs`.

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

INT8 = Path("models/lenet/lenet.int8.onnx")
RESNET = Path("models/resnet_cifar/resnet20.onnx")


@dataclass(frozen=True)
class Picture:
    """A report, the window in which it is seen, and what is selected there."""

    result: Callable[[], Result]
    width: int
    height: int
    fragment: str = ""
    dark: bool = False


def _profile(model: Path) -> Result:
    return tracer.profile(model, runs=300, threads=1, peaks=peaks)


def _sums() -> Result:
    return tracer.interpret(INT8, accumulator=18, inputs=Samples("digits"), batch=60)


def _sides() -> Result:
    folder = RESNET.parent
    return tracer.compare([str(folder / f"resnet20{kind}.onnx") for kind in ("", ".int8")])


PICTURES = {
    "report-light": Picture(lambda: _profile(RESNET), 1280, 960, "#selected=3"),
    "report-dark": Picture(lambda: _profile(RESNET), 1280, 960, "#view=roofline&by=module", True),
    "report-phone": Picture(lambda: _profile(RESNET), 390, 844),
    "report-compare": Picture(_sides, 1280, 1000),
    "report-overflow": Picture(_sums, 1280, 720, "#view=overflow&selected=8"),
}
"""By the name of the file."""


def take(folder: Path, names: list[str]) -> None:
    """Write the pictures with these names into `folder`."""
    with tempfile.TemporaryDirectory() as place, opened() as driver:
        browser = Browser(driver)
        for name in names:
            picture = PICTURES[name]
            report = picture.result().save(Path(place) / f"{name}.html")
            browser.open(report, picture.width, picture.height, picture.dark, picture.fragment)
            browser.picture(folder / f"{name}.png")


if __name__ == "__main__":
    if missing():
        sys.exit(missing())
    take(Path(sys.argv[1]), sys.argv[2:] or list(PICTURES))
