"""The option that chooses an energy model."""

from typing import Any

import click
import cloup
from click.shell_completion import CompletionItem

from tracer.analyzers.options import energy_models

_FILE = "FILE.toml"


class EnergyModelName(click.ParamType[str]):
    """The name of an energy model or of a TOML file; the help lists the models that are there."""

    name = "model"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Returns the names of all models."""
        return "|".join((*energy_models(), _FILE))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Lets the shell complete the names of models, and file names otherwise."""
        names = [name for name in energy_models() if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


def energy(default: str) -> Any:
    """`--energy MODEL`; `default` says what is without it."""
    return cloup.option(
        "--energy", type=EnergyModelName(),
        help="Energy model that fills the column energy, from the operations of each node and the "
             f"types of its operands; see docs/energy.md.  [default: {default}]",
    )  # fmt: skip
