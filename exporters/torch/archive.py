"""Files of torch: programs in .pt2, weights in safetensors or a state dict of torch.save.

A .pt2 is a zip of JSON and tensors. torch.export.load unpickles some tensors and objects without
restriction and evaluates symbolic sizes as Python. All of this is refused unless the file is
trusted.
"""

import io
import json
import logging
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch.utils._sympy import functions as sizes

from tracer.errors import InputError, UsageError, refusing
from tracer.exporters.records import check_exists, check_fit

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_TRUST = "Loading it runs code: give --trust if you know who wrote it."
_SIZE = re.compile(r"[\w\s'+*/%(),<>=-]*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SYMBOL = re.compile(r"[suz]\d+|int_oo|oo|True|False")
_SYMPY = ("Symbol", "Integer", "Rational", "Max", "Min", "Pow", "Add", "Mul")
_ASSUMED = ("positive", "nonnegative", "integer", "real", "finite")


def load_program(path: Path, *, trust: bool) -> torch.export.ExportedProgram:
    """Returns the exported program in `path`.

    Raises InputError if there is none, or if loading would run code without `trust`.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if not trust:
        _refuse_code(path)
    try:
        # torch.export does not ask torch.load to refuse all but tensors
        with quiet(), nullcontext() if trust else environment(_FORCE, "1"):
            return torch.export.load(path)
    except Exception as error:  # torch raises any kind of error for other files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not an exported program ({reason})") from error


def _refuse_code(path: Path) -> None:
    """Raises InputError for pickles, and sizes but of symbols, numbers and torch's functions."""
    allowed = {*sizes.__all__, *_SYMPY, *_ASSUMED}
    with (
        refusing(lambda why: InputError(f"{path}: not an exported program ({why})")),
        zipfile.ZipFile(path) as archive,
    ):
        for name in archive.namelist():
            if "custom_obj" in name or "opaque_obj" in name:
                raise InputError(f"{path}: holds a pickled object", _TRUST)
            if name.endswith(".json"):
                tree = json.loads(archive.read(name))
                for key, value in _entries(tree):
                    if key == "use_pickle" and value:
                        raise InputError(f"{path}: holds a pickled tensor", _TRUST)
                    if key != "expr_str":
                        continue
                    words = _WORD.findall(str(value))
                    is_known = all(word in allowed or _SYMBOL.fullmatch(word) for word in words)
                    if not is_known or not _SIZE.fullmatch(str(value)):
                        text = f"{str(value)[:60]!r}"
                        raise InputError(f"{path}: a size is not arithmetic: {text}", _TRUST)


def load_weights(model: object, path: Path, *, trust: bool) -> None:
    """Fills a torch.nn.Module from `path`; only `trust` allows unpickling more than tensors.

    Raises InputError if the file has neither format, holds other objects, or does not fit.
    """
    check_exists(path)
    if not isinstance(model, torch.nn.Module):
        raise UsageError("an exported program has its weights in it", "Name no file of weights.")
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        with refusing(lambda why: InputError(f"{path}: not a safetensors file ({why})")):
            state: Mapping[str, torch.Tensor] = load_file(path)
    else:
        state = _pickled(path, trust=trust)
    check_fit(path, _shapes_of(state), _shapes_of(model.state_dict()))
    model.load_state_dict(dict(state))


@contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings, log lines and the graphs that a failing trace prints.

    Torch sets levels and handlers on its own loggers, so logging is disabled globally. Errors come
    as exceptions.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        silence = io.StringIO()
        with warnings.catch_warnings(), redirect_stdout(silence), redirect_stderr(silence):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _shapes_of(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _pickled(path: Path, *, trust: bool) -> Mapping[str, torch.Tensor]:
    try:
        with quiet():
            state: Any = torch.load(path, map_location="cpu", weights_only=not trust)
    except pickle.UnpicklingError as error:
        if trust:
            raise InputError(f"{path}: not a file of torch.save ({error})") from error
        raise InputError(
            f"{path}: holds more than tensors, or is not a file of torch.save",
            "Unpickling runs code: give --trust if you know who wrote it, or use safetensors.",
        ) from error
    except Exception as error:  # unpickling other data raises any error
        reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise InputError(f"{path}: not a file of torch.save ({reason})") from error
    if isinstance(state, torch.nn.Module):
        state = state.state_dict()
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]  # a training checkpoint
    if not isinstance(state, Mapping) or not all(map(torch.is_tensor, state.values())):
        raise InputError(
            f"{path}: holds no state dict", "Save one: torch.save(model.state_dict(), file)."
        )
    return state


def _entries(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key, value
            yield from _entries(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _entries(value)


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Sets a variable of the environment within the context."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
