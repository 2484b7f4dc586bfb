"""The folder of a run: settings, log, the last snapshot, and in the end weights and model.

Every file is replaced as a whole, so that a run that dies leaves its last complete epoch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from models.training.learner import Learner
from models.training.loop import Epoch, from_json
from models.training.settings import Settings
from tracer.errors import InputError, UsageError
from tracer.support.files import write_atomically

SETTINGS = "settings.json"
LOG = "log.jsonl"
MODEL = "model.onnx"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps what it has."""

    path: Path

    @property
    def model(self) -> Path:
        """The exported model."""
        return self.path / MODEL

    def begin(self, settings: Settings) -> None:
        """Makes the folder and write the settings. Raises UsageError where a run lies already."""
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
        """What `begin` wrote. Raises UsageError where there is no run to continue."""
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

    def resume(self, settings: Settings, learner: Learner) -> list[Epoch]:
        """Bring `learner` back to the last snapshot; the epochs up to it, none if it died sooner.

        Raises InputError for a snapshot or a log that is not of this run, UsageError where it is
        already past the epochs of `settings`; nothing is written then.
        """
        snapshot = self._snapshot(learner)
        done = learner.restore(snapshot) if snapshot.is_file() else 0
        rows = self._log()
        logged, expected = [row.epoch for row in rows], list(range(1, done + 1))
        if logged not in (expected, [*expected, done + 1]):
            raise InputError(
                f"{self.path / LOG}: does not fit {snapshot.name} (epochs done: {done})",
                "Bring both files back as the run left them, or start a new run.",
            )
        if settings.epochs < done:
            raise UsageError(
                f"{self.path}: is at epoch {done}, past the {settings.epochs} asked for",
                f"Give --epochs {done} or more, or leave it out.",
            )
        self._write_settings(settings)
        return rows[:done]

    def record(self, rows: list[Epoch], learner: Learner) -> None:
        """Keeps the log and then the state: a log ahead of its snapshot is cut when resumed."""
        lines = "".join(f"{json.dumps(row.to_json())}\n" for row in rows)
        write_atomically(self.path / LOG, lines.encode())
        write_atomically(self._snapshot(learner), learner.snapshot(rows[-1].epoch))

    def finish(self, learner: Learner) -> Path:
        """Writes the final weights and return where."""
        weights = self.path / f"weights{learner.weights_suffix}"
        write_atomically(weights, learner.weights())
        return weights

    def _write_settings(self, settings: Settings) -> None:
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
