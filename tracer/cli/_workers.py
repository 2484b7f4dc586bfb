"""Options that share the work out: processes on this machine, or a cluster of Dask."""

import cloup

from tracer.cli._options import bundle
from tracer.cli._types import Count
from tracer.errors import UsageError


def _cluster(workers: int | None, scheduler: str | None) -> str | None:
    """Returns the pool as `tracer.scaling.pool` reads it. Raises UsageError for two of them."""
    if workers is not None and scheduler is not None:
        raise UsageError(
            "--workers starts processes on this machine, and --scheduler names a cluster",
            "Give one of them.",
        )
    return scheduler if workers is None else f"local:{workers}"


OPTIONS = bundle(
    "cluster", _cluster,
    cloup.option_group(
        "Workers",
        cloup.option("--workers", type=Count(1), metavar="N",
                     help="Share the data out to N processes on this machine. --threads are then "
                          "those of each.  [default: none]"),
        cloup.option("--scheduler", metavar="ADDRESS",
                     help="Share the data out to the workers of a Dask cluster, by the address of "
                          "its scheduler, e.g. tcp://host:8786.  [default: none]"),
    ),
)  # fmt: skip
