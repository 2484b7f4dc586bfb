"""Options that several commands of the models share."""

from pathlib import Path

import click

from models.data import DEFAULT_FOLDER

data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Folder of the cifar10 and mnist files.",
)
