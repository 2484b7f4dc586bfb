"""The learner of PyTorch."""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch.nn import functional

from models import families
from models.training.learner import Classes, Floats, no_snapshot

_BROKEN = (
    *(pickle.UnpicklingError, RuntimeError, EOFError, OSError),
    *(LookupError, ValueError, TypeError, AttributeError),
)


class TorchLearner:
    """A torch Module with Adam."""

    snapshot_suffix = ".pt"
    weights_suffix = ".safetensors"

    def __init__(self, model: torch.nn.Module, lr: float) -> None:
        self._model = model
        self._adam = torch.optim.Adam(model.parameters(), lr=lr)

    @property
    def model(self) -> torch.nn.Module:
        """The module, in inference mode."""
        return self._model.eval()

    def step(self, x: Floats, y: Classes) -> tuple[float, int]:
        """One update; see `Learner.step`."""
        self._model.train()
        self._adam.zero_grad()
        output = self._model(torch.from_numpy(x))
        loss = functional.cross_entropy(output, torch.from_numpy(y))
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        return _scored(loss, output, y)

    def score(self, x: Floats, y: Classes) -> tuple[float, int]:
        """No update; see `Learner.score`."""
        self._model.eval()
        with torch.no_grad():
            output = self._model(torch.from_numpy(x))
            return _scored(functional.cross_entropy(output, torch.from_numpy(y)), output, y)

    def snapshot(self, epoch: int) -> bytes:
        """Returns all state that the next epoch depends on, as tensors and plain numbers."""
        state = {
            "epoch": epoch,
            "model": self._model.state_dict(),
            "adam": self._adam.state_dict(),
            "random": torch.get_rng_state(),
        }
        file = io.BytesIO()
        torch.save(state, file)
        return file.getvalue()

    def restore(self, path: Path) -> int:
        """Loads a `snapshot` and returns its epoch; only tensors are unpickled."""
        try:
            state = torch.load(path, weights_only=True)
            self._model.load_state_dict(state["model"])
            self._adam.load_state_dict(state["adam"])
            torch.set_rng_state(state["random"])
            return int(state["epoch"])
        except _BROKEN as error:
            raise no_snapshot(path) from error

    def weights(self) -> bytes:
        """Returns the state dict, as safetensors."""
        return save({name: t.contiguous() for name, t in self._model.state_dict().items()})


def new(family: str, arguments: Mapping[str, object], lr: float, seed: int) -> TorchLearner:
    """Returns an untrained learner, seeded by `seed`."""
    torch.manual_seed(seed)
    model = families.build(family, "torch", arguments)
    assert isinstance(model, torch.nn.Module)
    return TorchLearner(model, lr)


def _scored(loss: torch.Tensor, output: torch.Tensor, y: Classes) -> tuple[float, int]:
    correct = (output.argmax(1) == torch.from_numpy(y)).sum()
    return float(loss.detach()) * len(y), int(correct)
