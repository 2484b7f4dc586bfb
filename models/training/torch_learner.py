"""The learner of PyTorch."""

import copy
import io
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch.nn import functional

from models import families
from models.training.learner import Classes, Inputs, no_snapshot
from tracer.errors import UsageError

_BROKEN = (
    *(pickle.UnpicklingError, RuntimeError, EOFError, OSError),
    *(LookupError, ValueError, TypeError, AttributeError),
)


class TorchLearner:
    """A torch Module with Adam, on a device."""

    snapshot_suffix = ".pt"
    weights_suffix = ".safetensors"

    def __init__(self, model: torch.nn.Module, lr: float, device: str = "cpu") -> None:
        self._device = torch.device(device)
        self._model = model.to(self._device)
        self._adam = torch.optim.Adam(model.parameters(), lr=lr)

    @property
    def model(self) -> torch.nn.Module:
        """The module on the CPU, in inference mode; a copy if it learns on another device."""
        if self._device.type == "cpu":
            return self._model.eval()
        return copy.deepcopy(self._model).cpu().eval()

    def step(self, x: Inputs, y: Classes) -> tuple[float, float]:
        """One update; see `Learner.step`."""
        self._model.train()
        self._adam.zero_grad()
        loss, correct = self._scored(x, y)
        loss.backward()
        self._adam.step()
        return float(loss.detach()) * len(y), float(correct)

    def score(self, x: Inputs, y: Classes) -> tuple[float, float]:
        """No update; see `Learner.score`."""
        self._model.eval()
        with torch.no_grad():
            loss, correct = self._scored(x, y)
        return float(loss) * len(y), float(correct)

    def snapshot(self, epoch: int) -> bytes:
        """Returns all state that the next epoch depends on, as tensors and plain numbers."""
        state = {
            "epoch": epoch,
            "model": self._model.state_dict(),
            "adam": self._adam.state_dict(),
            "random": torch.get_rng_state(),
            "device": self._generator_state(),
        }
        file = io.BytesIO()
        torch.save(state, file)
        return file.getvalue()

    def restore(self, path: Path) -> int:
        """Loads a `snapshot` and returns its epoch; only tensors are unpickled."""
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            self._model.load_state_dict(state["model"])
            self._adam.load_state_dict(state["adam"])
            torch.set_rng_state(state["random"])
            self._restore_generator(state.get("device"))
            return int(state["epoch"])
        except _BROKEN as error:
            raise no_snapshot(path) from error

    def weights(self) -> bytes:
        """Returns the state dict, as safetensors."""
        return save({name: t.cpu().contiguous() for name, t in self._model.state_dict().items()})

    def _scored(self, x: Inputs, y: Classes) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the mean loss of a batch, and the number of correctly classified
        images, or the sum of the shares of correct tokens of windows of text."""
        outputs = self._model(torch.from_numpy(x).to(self._device))
        output = outputs[0] if isinstance(outputs, tuple) else outputs  # the others are a cache
        scores, classes = output.flatten(0, -2), torch.from_numpy(y).to(self._device).flatten()
        loss = functional.cross_entropy(scores, classes)
        correct = (scores.argmax(1) == classes).reshape(len(y), -1)
        return loss, correct.double().mean(1).sum()

    def _generator_state(self) -> torch.Tensor | None:
        """Returns the state of the device's own generator, which draws for dropout there."""
        if self._device.type == "cpu":
            return None
        state: torch.Tensor = getattr(torch, self._device.type).get_rng_state()
        return state

    def _restore_generator(self, state: torch.Tensor | None) -> None:
        if state is not None and self._device.type != "cpu":
            getattr(torch, self._device.type).set_rng_state(state)


def new(
    family: str, arguments: Mapping[str, object], lr: float, seed: int, device: str
) -> TorchLearner:
    """Returns an untrained learner, seeded by `seed`. Raises UsageError for an absent device."""
    _require_device(device)
    torch.manual_seed(seed)
    model = families.build(family, "torch", arguments)
    assert isinstance(model, torch.nn.Module)
    return TorchLearner(model, lr, device)


def _require_device(device: str) -> None:
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not present[device]:
        there = ", ".join(name for name, is_present in present.items() if is_present)
        raise UsageError(
            f"torch sees no {device} device", f"Leave --device out; torch can use: {there}."
        )
