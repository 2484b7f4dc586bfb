"""Load torch weights from safetensors or a state dict of torch.save."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tracer.errors import InputError, UsageError, refusing
from tracer.exporters.torch.quiet import quiet
from tracer.exporters.weights import check_exists, check_fit


def load_weights(model: object, path: Path, *, trust: bool) -> None:
    """Fills a torch.nn.Module from `path`; only `trust` allows unpickling more than tensors.

    Raises InputError if the file has neither format, holds other objects, or does not fit.
    """
    check_exists(path)
    if not isinstance(model, torch.nn.Module):
        raise UsageError("an exported program has its weights in it", "Leave --weights out.")
    state = _safetensors(path) if path.suffix == ".safetensors" else _pickled(path, trust=trust)
    check_fit(path, _shapes(state), _shapes(model.state_dict()))
    model.load_state_dict(dict(state))


def _shapes(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _safetensors(path: Path) -> Mapping[str, torch.Tensor]:
    from safetensors.torch import load_file

    with refusing(lambda why: InputError(f"{path}: not a safetensors file ({why})")):
        return load_file(path)


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
        raise InputError(f"{path}: not a file of torch.save ({_first(error)})") from error
    if isinstance(state, torch.nn.Module):
        state = state.state_dict()
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]  # a training checkpoint
    if not isinstance(state, Mapping) or not all(map(torch.is_tensor, state.values())):
        raise InputError(
            f"{path}: holds no state dict", "Save one: torch.save(model.state_dict(), file)."
        )
    return state


def _first(error: Exception) -> str:
    lines = str(error).splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])
