"""Running a Python file of the user's."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tracer.errors import InputError


def from_file(file: Path) -> ModuleType:
    """Run a file as part of the package its folder is, or alone where its folder is none.

    Its own folder is last on the path: it may import what lies beside it, but a `chainer.py` there
    is not taken for Chainer. Raises InputError for what is no Python file, and whatever its code
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
        raise InputError(f"{file}: not a Python file", "Give FILE.py:NAME.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module
