"""Imports a Python file of the user's, and tells where its code fails."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tracer.errors import InputError


def from_file(file: Path) -> ModuleType:
    """Imports a file as part of its package, or alone if its folder is not a package.

    Its folder is last on the path: it may import its neighbours, but a `chainer.py` there does not
    replace Chainer. Raises InputError for a file that is not Python, and whatever its code raises.
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
    spec.loader.exec_module(module)
    return module


def raised(what: str, file: Path, error: BaseException) -> InputError:
    """Returns the error that `what`, code of `file`, raised `error`; it names the line."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    reason = message.partition("\n")[0].rstrip(".")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    where = f" ({file}, line {line})" if line else ""
    text = f"{what} raised {type(error).__name__}: {reason}".rstrip(": ")
    return InputError(f"{text}{where}", "--debug shows the traceback.")
