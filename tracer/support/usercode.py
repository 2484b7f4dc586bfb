"""Imports a Python file of the user's, and tells where its code fails."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from tracer.errors import InputError, TracerError


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


def imported(file: Path, form: str) -> ModuleType:
    """Imports a file that may be missing or fail.

    Raises InputError where there is no such file, with `form` as the hint, or where its code fails.
    """
    if not file.is_file():
        raise InputError(f"{file}: no such file", form)
    try:
        return from_file(file)
    except TracerError:  # already names the problem
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise raised(str(file), file, error) from error


def named(file: Path, name: str, form: str) -> Any:
    """Imports a file and returns what it calls `name`, or None. Raises what `imported` raises."""
    return getattr(imported(file, form), name, None)


def raised(what: str, file: Path, error: BaseException) -> InputError:
    """Returns the error of user code in `file`, with its line; `what` names what failed."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    reason = message.partition("\n")[0].rstrip(".")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    where = f" ({file}, line {line})" if line else ""
    text = f"{what} raised {type(error).__name__}: {reason}".rstrip(": ")
    return InputError(f"{text}{where}", "--debug shows the traceback.")
