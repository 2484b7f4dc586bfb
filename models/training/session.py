"""Start or resume a training run, train, and write its results."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from models import families
from models.data import LabelledImages, Text, load
from models.training import loop, product
from models.training.folder import RunFolder
from models.training.learner import Learner, new_learner
from models.training.settings import TrainSettings, continued
from tracer.containment.activity import Progress
from tracer.errors import UsageError
from tracer.exporters.records import Exported


@dataclass(frozen=True, slots=True)
class Session:
    """A learner, its data and its folder; `rows` are its past epochs."""

    settings: TrainSettings
    folder: RunFolder
    dataset: LabelledImages | Text
    learner: Learner
    rows: list[loop.Epoch] = field(default_factory=list)

    @property
    def done(self) -> int:
        """The last saved epoch."""
        return self.rows[-1].epoch if self.rows else 0

    def epochs(self, progress: Progress) -> Iterator[loop.Epoch]:
        """Trains the remaining epochs; each is saved before it is yielded."""
        for row in loop.train(self.learner, self.dataset, self.settings, self.done, progress):
            self.folder.record([*self.rows, row], self.learner)
            self.rows.append(row)
            yield row

    def finish(self) -> tuple[Path, Exported]:
        """Writes weights and model. Raises the errors of `tracer.export`."""
        weights = self.folder.finish(self.learner)
        labels = self.dataset.labels
        return weights, product.export(self.learner, self.settings, labels, self.folder.model)


def start(request: Mapping[str, object], folder: RunFolder, data_dir: Path) -> Session:
    """Returns a new run of `request["family"]`; its recipe supplies the other settings.

    Raises UsageError, InputError or ModelError for a request that cannot be trained.
    """
    family = str(request["family"])
    recipe = families.recipe(family)
    default = TrainSettings(
        family, "torch", recipe.data, recipe.input_shape, recipe.epochs, recipe.batch, recipe.lr
    )
    session = _prepare(replace(default, **request), folder, data_dir)
    folder.begin(session.settings)
    return session


def resume(request: Mapping[str, object], folder: RunFolder, data_dir: Path) -> Session:
    """Returns the run in `folder` after its last complete epoch.

    Raises UsageError if `request` contradicts the run or there is none, InputError for broken
    files.
    """
    settings = continued(folder.saved_settings(), request, str(folder.path))
    session = _prepare(settings, folder, data_dir)
    return replace(session, rows=folder.resume(session.settings, session.learner))


def _prepare(settings: TrainSettings, folder: RunFolder, data_dir: Path) -> Session:
    dataset = _fitted(settings, data_dir)
    classes = {"classes": len(dataset.labels)} if dataset.labels else {}
    arguments = {**classes, **settings.arguments}
    if dataset.labels and arguments["classes"] != len(dataset.labels):
        raise UsageError(
            f"{settings.data} has {len(dataset.labels)} classes, not {arguments['classes']}",
            "Leave --arg classes out.",
        )

    def untrained() -> Learner:
        return new_learner(
            settings.family, settings.framework, arguments, settings.lr, settings.seed,
            settings.device,
        )  # fmt: skip

    _probe(untrained(), dataset, settings)
    return Session(settings, folder, dataset, untrained())  # the probe updated its weights


def _fitted(settings: TrainSettings, data_dir: Path) -> LabelledImages | Text:
    dataset, shape = load(settings.data, data_dir), settings.input_shape
    if isinstance(dataset, Text) and len(shape) == 1:
        return dataset.fitted(shape)
    if isinstance(dataset, LabelledImages) and len(shape) == 3:
        channels, height, width = shape
        return dataset.fitted((channels, height, width))
    needed, other = ("text", "images") if len(shape) == 1 else ("images", "text")
    raise UsageError(
        f"{settings.family} learns from {needed}, and {settings.data} is {other}",
        f"Leave --data out: {settings.family} then learns from "
        f"{families.recipe(settings.family).data}.",
    )


def _probe(learner: Learner, dataset: LabelledImages | Text, settings: TrainSettings) -> None:
    """Raises UsageError if the model cannot take such images or learn from such batches."""
    with _usage_error(
        f"{settings.family} cannot take images of {settings.input_shape}",
        "Leave --size out, or give one the family's card allows.",
    ):
        learner.score(*dataset.test.batch(slice(0, 2)))
    fewest = min(s.stop - s.start for s in loop.batches(len(dataset.train), settings.batch))
    with _usage_error(  # such as from batch normalisation, which needs several values
        f"{settings.family} cannot learn from a batch of {fewest}",
        "Give a larger --batch, or more images.",
    ):
        learner.step(*dataset.train.batch(slice(0, min(fewest, 2))))


@contextmanager
def _usage_error(what: str, hint: str) -> Iterator[None]:
    """Raises UsageError for any error: frameworks raise different ones for wrong shapes."""
    try:
        yield
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"{what}: {reason}", hint) from error
