"""The folder of a run: settings, log, the last snapshot, and finally weights and model.

Files are replaced atomically, so a killed run leaves its last complete epoch.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from models.training.learner import Learner
from models.training.loop import Epoch, from_json
from models.training.settings import TrainSettings
from tracer.errors import InputError, UsageError
from tracer.support.files import write_atomically
from tracer.support.temporary import sweep

SETTINGS = "settings.json"
LOG = "log.jsonl"
MODEL = "model.onnx"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of a run."""

    path: Path

    @property
    def model(self) -> Path:
        """The exported model."""
        return self.path / MODEL

    def begin(self, settings: TrainSettings) -> None:
        """Creates the folder and its settings. Raises UsageError if it already holds a run."""
        if (self.path / SETTINGS).exists():
            raise UsageError(
                f"{self.path} holds a run already", "Continue it with --resume or change --out."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror})", "Give another --out."
            ) from error
        self._write_settings(settings)

    def saved_settings(self) -> dict[str, object]:
        """Returns the settings that `begin` wrote. Raises UsageError if there is no run."""
        file = self.path / SETTINGS
        if not file.is_file():
            raise UsageError(f"{self.path}: no run to resume", "Leave --resume out to start one.")
        try:
            saved = json.loads(file.read_text("utf-8"))
        except ValueError as error:
            raise InputError(f"{file}: not JSON ({error})", "Start a new run.") from error
        if not isinstance(saved, dict):
            raise InputError(f"{file}: not the settings of a run", "Start a new run.")
        return saved

    def resume(self, settings: TrainSettings, learner: Learner) -> list[Epoch]:
        """Restores `learner` from the last snapshot and returns the epochs up to it, maybe none.

        Raises InputError for a snapshot or a log of another run, UsageError if the run is already
        past the epochs of `settings`; nothing is written then.
        """
        snapshot = self._snapshot(learner)
        done = learner.restore(snapshot) if snapshot.is_file() else 0
        rows = self._log()
        logged, expected = [row.epoch for row in rows], list(range(1, done + 1))
        if logged not in (expected, [*expected, done + 1]):
            raise InputError(
                f"{self.path / LOG}: does not fit {snapshot.name} (epochs done: {done})",
                "Restore both files as the run wrote them, or start a new run.",
            )
        if settings.epochs < done:
            raise UsageError(
                f"{self.path}: is at epoch {done}, past the {settings.epochs} asked for",
                f"Give --epochs {done} or more, or leave it out.",
            )
        sweep(self.path)
        self._write_settings(settings)
        return rows[:done]

    def record(self, rows: list[Epoch], learner: Learner) -> None:
        """Writes the log, then the state; `resume` cuts a log that is ahead of its snapshot."""
        lines = "".join(f"{json.dumps(row.to_json())}\n" for row in rows)
        write_atomically(self.path / LOG, lines.encode())
        write_atomically(self._snapshot(learner), learner.snapshot(rows[-1].epoch))

    def finish(self, learner: Learner) -> Path:
        """Writes the final weights and returns their path."""
        weights = self.path / f"weights{learner.weights_suffix}"
        write_atomically(weights, learner.weights())
        return weights

    def _write_settings(self, settings: TrainSettings) -> None:
        text = json.dumps(settings.to_json(), indent=2) + "\n"
        write_atomically(self.path / SETTINGS, text.encode())

    def _snapshot(self, learner: Learner) -> Path:
        return self.path / f"snapshot{learner.snapshot_suffix}"

    def _log(self) -> list[Epoch]:
        file = self.path / LOG
        if not file.is_file():
            return []
        try:
            return [from_json(json.loads(line)) for line in file.read_text("utf-8").splitlines()]
        except (ValueError, TypeError) as error:
            raise InputError(f"{file}: not the log of a run", "Start a new run.") from error
