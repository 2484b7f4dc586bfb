"""Imports optional packages, files of the user's, and packages under their former names.

An error says what to install, or where the user's code fails. Nothing here imports what is heavy.
"""

import importlib
import importlib.util
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from tracer.errors import InputError, TracerError, UsageError

_EXTRAS = {
    **dict.fromkeys(("torch", "onnxscript", "safetensors"), "torch"),
    "tensorboardX": "train",
    **dict.fromkeys(("dask", "distributed"), "dask"),
    "pyarrow": "parquet",
    "tokenizers": "text",
    "openvino": "openvino",
}
"""The extra of this package that brings an optional package."""
_CHAINER = "pip install 'setuptools~=80.0' && pip install --no-build-isolation chainer==7.8.1"
"""Its build needs a package that setuptools 81 dropped."""


def require(feature: str, *packages: str) -> None:
    """Raises UsageError, naming what to install, if `feature` needs a missing package."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise not_installed(feature, error) from error


def not_installed(feature: str, error: ModuleNotFoundError) -> UsageError:
    """Returns the error that names what to install for `feature`, which failed with `error`.

    Installing an unknown name is not recommended: it may be a file of the user's.
    """
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra or package == "chainer":
        remedy = f"pip install 'tracer-onnx[{extra}]'" if extra else _CHAINER
        return UsageError(f"{feature} needs '{package}', which is not installed", f"Run {remedy}.")
    return UsageError(
        f"{feature} imports '{package}', which is not installed",
        "Install the package that contains it, or add its folder to PYTHONPATH.",
    )


def import_file(file: Path) -> ModuleType:
    """Imports a file as part of its package, or alone if its folder is not a package.

    Its folder is last on the path: it may import its neighbours, but a `chainer.py` there does not
    replace Chainer. A package is imported where it lies in the working directory, or where the file
    has relative imports. Raises InputError for a file that is not Python, and whatever its code
    raises.
    """
    file = file.resolve()
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    package: list[str] = []
    folder = file.parent
    while (folder / "__init__.py").is_file():
        package.insert(0, folder.name)
        folder = folder.parent
    if package and folder == Path.cwd():
        return importlib.import_module(".".join([*package, file.stem]))
    name = f"tracer_source_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: not a Python file", "Name FILE.py:NAME.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look up their module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        if not package or "no known parent package" not in str(error):
            raise
        del sys.modules[name]
        sys.path.append(str(folder))  # it imports by way of its package, which runs, too
        return importlib.import_module(".".join([*package, file.stem]))
    return module


def import_user_file(file: Path, form: str) -> ModuleType:
    """Imports a file that may be missing or fail.

    Raises InputError where there is no such file, with `form` as the hint, or where its code fails.
    """
    if not file.is_file():
        raise InputError(f"{file}: no such file", form)
    with naming_user_code(str(file), file):
        return import_file(file)


def from_user_file(file: Path, name: str, form: str) -> Any:
    """Returns what a file calls `name`, or None. Raises what `import_user_file` raises."""
    return getattr(import_user_file(file, form), name, None)


@contextmanager
def naming_user_code(what: str, file: Path) -> Iterator[None]:
    """Turns whatever the user's code in `file` raises into the error of `user_code_error`."""
    try:
        yield
    except TracerError:  # already names the problem
        raise
    except (Exception, SystemExit) as error:
        raise user_code_error(what, file, error) from error


def user_code_error(what: str, file: Path, error: BaseException) -> InputError:
    """Returns the error of user code in `file`, with its line; `what` names what failed."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    reason = message.partition("\n")[0].rstrip(".")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    where = f" ({file}, line {line})" if line else ""
    text = f"{what} raised {type(error).__name__}: {reason}".rstrip(": ")
    return InputError(f"{text}{where}", "--debug shows the traceback.")


_HOME = Path(__file__).parents[2]
_VERSIONED = (
    Path(sys.prefix), Path(sys.base_prefix),
    *(_HOME / package for package in ("tracer", "analyzers", "exporters")),
)  # fmt: skip
"""Folders of installed packages and of this program: their versions tell what is in them."""
_VIRTUAL = (Path("/dev"), Path("/proc"), Path("/sys"))
_PACKAGES = frozenset({"site-packages", "dist-packages", "__pycache__"})
_WRITING = frozenset("wax+")

_watching: list[set[str]] = []
_is_hooked = False


@contextmanager
def files_read() -> Iterator[set[Path]]:
    """Gives a set that holds, after the `with`, the files that it read and all imported files.

    Files of installed packages and of this program are left out. What native code opens is not
    seen.
    """
    global _is_hooked
    if not _is_hooked:
        sys.addaudithook(_note_opened)  # for the life of the process: there is no way back
        _is_hooked = True
    opened, found = set[str](), set[Path]()
    _watching.append(opened)
    try:
        yield found
    finally:
        _watching.pop()
    modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = {Path(name).resolve() for name in (*opened, *filter(None, modules))}
    for path in filter(Path.is_file, paths):
        is_versioned = any(map(path.is_relative_to, (*_VERSIONED, *_VIRTUAL)))
        if not is_versioned and _PACKAGES.isdisjoint(path.parts):
            found.add(path)


def _note_opened(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _watching:
        return
    name, mode = arguments[:2]
    is_written = isinstance(mode, str) and _WRITING.intersection(mode)
    if isinstance(name, str | Path) and not is_written:
        _watching[-1].add(str(name))


def redirect(package: str) -> None:
    """Makes imports of `package` and its modules give those of `tracer.<package>`, and warns.

    A folder of that name is on the path in a checkout alone: installed, there is no such package.
    """
    now = f"tracer.{package}"
    warnings.warn(f"{package} is {now} now", DeprecationWarning, stacklevel=3)
    sys.meta_path.insert(0, _FormerNames(package))
    sys.modules[package] = importlib.import_module(now)


class _FormerNames(MetaPathFinder, Loader):
    """Finds a module of the package by its name of today: there is never a second copy of it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{self._package}."):
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"tracer.{spec.name}")
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has set one of the former name
