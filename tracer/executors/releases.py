"""Releases of a runtime beside the installed one, each in a folder of its own in the cache.

pip installs a release once, from the index that it is configured for; afterwards no network is
needed. `release.json` in the folder has the file of each wheel and its SHA-256.
"""

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tracer.containment.activity import Progress
from tracer.errors import InputError, UsageError
from tracer.records import environment
from tracer.support.files import cache_folder

PACKAGES = {"ort": "onnxruntime", "openvino": "openvino", "torch": "torch"}
"""What pip installs for a side of this short name."""
_DEFAULT = "onnxruntime"
_FOR_NUMPY_2 = {"onnxruntime": (1, 19), "torch": (2, 3)}
"""The first release that is compiled for numpy 2. Those before get a numpy and a pandas of their
own, as pandas 3 does not run on numpy 1."""
_NUMPY_1 = ("numpy<2", "pandas<3", "pytz")
_OFFERED = re.compile(r"\(from versions: ([^)]*)\)")
_RECORD = "release.json"


@dataclass(frozen=True, slots=True)
class Release:
    """A release of a package, such as 1.20.1."""

    version: str
    package: str = _DEFAULT

    def __post_init__(self) -> None:
        if re.fullmatch(r"\d+(\.\d+)+([a-z]+\d+)?(\.dev\d+)?(\+\w+)?", self.version) is None:
            raise UsageError(
                f"'{self.version}' is no release of {self.package}",
                "Give a version, such as 1.20.1.",
            )

    @property
    def folder(self) -> Path:
        """The folder in the cache that has, or will have, the release for this Python."""
        name = f"{self.package}-{self.version}-{sys.implementation.cache_tag}"
        return cache_folder() / "releases" / name

    @property
    def is_installed(self) -> bool:
        """Whether the folder is complete."""
        return (self.folder / _RECORD).is_file()

    def folders(self, progress: Progress) -> list[str]:
        """Returns what comes first on the path of a process with this release; installs it once.

        That is nothing for the release that is installed here. Raises InputError where no wheel
        fits this Python, or pip cannot get it.
        """
        installed = _installed(self.package)  # of torch's 2.13.0+cpu the first part is the release
        if self.version in (installed, installed.partition("+")[0]):
            return []
        if self.is_installed:
            return [str(self.folder)]
        progress(0, 0, f"getting {self.package} {self.version}")
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=".new-") as text:
            new = Path(text) / "release"
            report = Path(text) / "report.json"
            numbers = tuple(map(int, self.version.split(".")[:2]))
            own = () if numbers >= _FOR_NUMPY_2.get(self.package, ()) else _NUMPY_1
            alone = () if self.package == "torch" else ("--no-deps",)  # its wheels need CUDA's
            words = *alone, "--report", report, f"{self.package}=={self.version}", *own
            done = _pip_install(new, *words)
            if done.returncode:
                raise self._refusal(done.stderr)
            wheels = json.loads(report.read_text("utf-8"))["install"]
            record = {
                each["download_info"]["url"].rpartition("/")[2]:
                    each["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
                for each in wheels
            }  # fmt: skip
            (new / _RECORD).write_text(json.dumps(record, indent=1), "utf-8")
            if not self.is_installed:  # another process may have been faster
                shutil.rmtree(self.folder, ignore_errors=True)
                new.rename(self.folder)
        return [str(self.folder)]

    def _refusal(self, output: str) -> InputError:
        """Returns the error for what pip wrote."""
        offered = _offered(output)
        if not offered:
            lines = [line for line in output.splitlines() if line.startswith("ERROR:")]
            why = lines[0].removeprefix("ERROR:").strip(" .") if lines else "pip failed"
            return InputError(
                f"{self.package} {self.version} cannot be downloaded: {why}",
                "A release is downloaded once, and needs the package index for that.",
            )
        return InputError(
            f"{self.package} {self.version} has no wheel for {platform.python_implementation()} "
            f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            f"There are {', '.join(offered)}.",
        )


def releases_of(text: str, every: bool = False) -> list[Release]:
    """Returns the releases of onnxruntime that `1.17:1.20`, `1.17:` or `1.17.3,1.20.1` names.

    The oldest is first.

    Of a range these are the newest of each minor version, or `every` one, of those that pip offers
    for this Python. Where the index cannot be asked, they are the installed one and those that have
    been downloaded. Raises UsageError where the text names fewer than two.
    """
    if ":" not in text:
        named = [Release(version) for version in dict.fromkeys(text.split(","))]
    else:
        low, high = (_numbers(Release(end).version) if end else () for end in text.split(":", 1))
        with tempfile.TemporaryDirectory() as folder:
            known = _offered(_pip_install(Path(folder), "--no-deps", f"{_DEFAULT}==0.0").stderr)
        if not known:
            tag = sys.implementation.cache_tag
            here = cache_folder().glob(f"releases/{_DEFAULT}-*-{tag}/{_RECORD}")
            known = [_installed(_DEFAULT), *(each.parent.name.split("-")[1] for each in here)]
        within = [
            version
            for version in sorted(known, key=_numbers)
            if low <= _numbers(version) and (not high or _numbers(version)[: len(high)] <= high)
        ]
        minors = {_numbers(version)[:2]: version for version in within}
        named = [Release(version) for version in (within if every else minors.values())]
    if len(named) < 2:
        what = f"names {len(named)} of the releases" if ":" in text else "is one release"
        raise UsageError(
            f"--ort {text} {what}, and two or more are compared",
            "Give a range such as 1.17:1.31, or several such as 1.17.3,1.20.1.",
        )
    return sorted(named, key=lambda each: _numbers(each.version))


def _installed(package: str) -> str:
    return environment.version_of(package, environment.versions())


def _numbers(version: str) -> tuple[int, ...]:
    """Returns what orders a release; a preview comes after none of its own numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _pip_install(folder: Path, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Lets pip install wheels into a folder. Raises InputError where there is no pip."""
    if importlib.util.find_spec("pip") is None:
        raise InputError(
            "releases are listed and installed by pip, which is not there",
            f"Run {sys.executable} -m ensurepip.",
        )
    # a file of constraints is about what is installed here, often another version than this; an
    # empty one stands for it, as the user's may be named in pip's configuration, too
    variables = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    return subprocess.run(  # noqa: S603 - our own interpreter
        [
            sys.executable, "-m", "pip", "install", "--no-input", "--only-binary", ":all:",
            "--target", folder, *words,
        ],
        capture_output=True, text=True, check=False, env=variables,
    )  # fmt: skip


def _offered(output: str) -> list[str]:
    """Returns the versions that pip names in a refusal, without previews."""
    offered = _OFFERED.search(output)
    versions = offered[1].split(", ") if offered else ()
    return [version for version in versions if re.fullmatch(r"[\d.]+", version)]
