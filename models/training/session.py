"""A run from its start, or from where it was left, to its product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from exporters.records import Exported
from models import families
from models.data import LabelledImages, load
from models.training import loop, product
from models.training.folder import RunFolder
from models.training.learner import Learner, new_learner
from models.training.settings import Settings, continued
from tracer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Session:
    """A learner, what it learns from, and the folder it is kept in; `rows` are its past epochs."""

    settings: Settings
    folder: RunFolder
    dataset: LabelledImages
    learner: Learner
    rows: list[loop.Epoch] = field(default_factory=list)

    @property
    def done(self) -> int:
        """The last epoch that is safe."""
        return self.rows[-1].epoch if self.rows else 0

    def epochs(self, progress: loop.Progress) -> Iterator[loop.Epoch]:
        """Trains what is left; an epoch is safe in the folder before it comes out."""
        for row in loop.train(self.learner, self.dataset, self.settings, self.done, progress):
            self.folder.record([*self.rows, row], self.learner)
            self.rows.append(row)
            yield row

    def finish(self) -> tuple[Path, Exported]:
        """Writes weights and model. Raises the errors of `tracer.export`."""
        weights = self.folder.finish(self.learner)
        labels = self.dataset.labels
        return weights, product.export(self.learner, self.settings, labels, self.folder.model)


def start(asked: Mapping[str, object], folder: RunFolder, data_dir: Path) -> Session:
    """Returns a new run of `asked["family"]`, with its recipe for whatever else is not asked.

    Raises UsageError, InputError or ModelError for anything that could not be trained.
    """
    family = str(asked["family"])
    recipe = families.recipe(family)
    default = Settings(
        family=family,
        framework="torch",
        data="digits",
        input_shape=recipe.input_shape,
        epochs=recipe.epochs,
        batch=recipe.batch,
        lr=recipe.lr,
    )
    session = _prepare(replace(default, **asked), folder, data_dir)  # type: ignore[arg-type]
    folder.begin(session.settings)
    return session


def resume(asked: Mapping[str, object], folder: RunFolder, data_dir: Path) -> Session:
    """Returns the run in `folder` as it was after its last complete epoch.

    Raises UsageError where `asked` contradicts it or there is none, InputError where its files
    are broken.
    """
    settings = continued(folder.saved_settings(), asked, str(folder.path))
    session = _prepare(settings, folder, data_dir)
    return replace(session, rows=folder.resume(session.settings, session.learner))


def _prepare(settings: Settings, folder: RunFolder, data_dir: Path) -> Session:
    dataset = load(settings.data, data_dir).fitted(settings.input_shape)
    arguments = {"classes": len(dataset.labels), **settings.arguments}
    if arguments["classes"] != len(dataset.labels):
        raise UsageError(
            f"{settings.data} has {len(dataset.labels)} classes, not {arguments['classes']}",
            "Leave --arg classes out.",
        )

    def beginner() -> Learner:
        return new_learner(
            settings.family, settings.framework, arguments, settings.lr, settings.seed
        )

    _probe(beginner(), dataset, settings)
    return Session(settings, folder, dataset, beginner())  # the probe has learned something


def _probe(learner: Learner, dataset: LabelledImages, settings: Settings) -> None:
    """Before anything is written: does the model take such images, and learn from so few?"""
    try:
        learner.score(*dataset.test.batch(slice(0, 2)))
    except Exception as error:  # each framework has its own for shapes that do not fit
        why = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"{settings.family} cannot take images of {settings.input_shape}: {why}",
            "Leave --size out, or give one the family's card allows.",
        ) from error
    fewest = min(s.stop - s.start for s in loop.batches(len(dataset.train), settings.batch))
    try:
        learner.step(*dataset.train.batch(slice(0, min(fewest, 2))))
    except Exception as error:  # as batch normalisation, which wants more than one value
        why = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"{settings.family} cannot learn from a batch of {fewest}: {why}",
            "Give a larger --batch, or more images.",
        ) from error
