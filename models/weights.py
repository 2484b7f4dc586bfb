"""Convert weights between PyTorch and Chainer, for modules with the same dotted paths.

Both frameworks store a convolution as [out, in, kH, kW] and a linear layer as [out, in], so only
names change: `stage1.0.conv1.weight` is `stage1/0/conv1/W`. A batch normalisation is recognised by
its running statistics, which are converted as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.exporters.chainer import compat

if TYPE_CHECKING:
    import torch

Arrays = dict[str, NDArray[np.generic]]

_LAYER = {"weight": "W", "bias": "b"}
_NORM = {"weight": "gamma", "bias": "beta", "running_mean": "avg_mean", "running_var": "avg_var"}
_TORCH_ONLY, _CHAINER_ONLY = "num_batches_tracked", "N"  # counters that inference does not read


def to_chainer(state: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """Returns a torch state dict under the names of a Chainer .npz.

    Raises InputError for layers other than convolution, linear and batch normalisation.
    """
    arrays: Arrays = {}
    for name, array in state.items():
        path, _, leaf = name.rpartition(".")
        prefix = path.replace(".", "/")
        if leaf == _TORCH_ONLY:
            arrays[f"{prefix}/{_CHAINER_ONLY}"] = np.array(0)
            continue
        names = _NORM if f"{path}.running_mean" in state else _LAYER
        if leaf not in names:
            raise InputError(f"'{name}' {array.shape} has no Chainer name", _known(_LAYER, _NORM))
        arrays[f"{prefix}/{names[leaf]}"] = array
    return arrays


def to_torch(arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """Returns the arrays of a Chainer .npz under the names of a torch state dict.

    Raises InputError for an array without torch name.
    """
    names = {chainer: torch for table in (_LAYER, _NORM) for torch, chainer in table.items()}
    state: Arrays = {}
    for name, array in arrays.items():
        path, _, leaf = name.strip("/").rpartition("/")
        prefix = path.replace("/", ".")
        if leaf == _CHAINER_ONLY:
            state[f"{prefix}.{_TORCH_ONLY}"] = np.array(0)
            continue
        if leaf not in names:
            raise InputError(f"'{name}' {array.shape} has no torch name", _known(names))
        state[f"{prefix}.{names[leaf]}"] = array
    return state


def copy_to_chainer(source: torch.nn.Module, target: Any) -> None:
    """Copies weights into the Chain `target`. Raises InputError if names or shapes differ."""
    arrays = to_chainer({name: t.detach().numpy() for name, t in source.state_dict().items()})
    _require_same(arrays, chainer_arrays(target))
    compat.load().serializers.NpzDeserializer(arrays).load(target)


def copy_to_torch(source: Any, target: torch.nn.Module) -> None:
    """Copies weights of the Chain `source`. Raises InputError if names or shapes differ."""
    import torch

    state = to_torch(chainer_arrays(source))
    _require_same(state, {name: t.numpy() for name, t in target.state_dict().items()})
    target.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})


def chainer_arrays(chain: Any) -> Arrays:
    """Returns the arrays that `chainer.serializers.save_npz` would write of a Chain."""
    serializer = compat.load().serializers.DictionarySerializer()
    serializer.save(chain)
    return {name: np.asarray(array) for name, array in serializer.target.items()}


def _require_same(source: Arrays, target: Arrays) -> None:
    def listed(arrays: Arrays, other: Arrays) -> str:
        odd = [n for n, a in arrays.items() if n not in other or other[n].shape != a.shape]
        return ", ".join(f"{name} {arrays[name].shape}" for name in odd) or "nothing"

    more, less = listed(source, target), listed(target, source)
    if more != less:
        raise InputError(
            f"the weights do not fit: source has {more}; target needs {less}",
            "Build both models from the same family with the same arguments.",
        )


def _known(*tables: Mapping[str, str]) -> str:
    return f"Known are {', '.join(dict.fromkeys(name for table in tables for name in table))}."
