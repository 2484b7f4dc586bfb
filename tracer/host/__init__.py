"""The peak rates of this machine, measured once and stored: the roofs of a roofline."""

from collections.abc import Callable
from pathlib import Path

from tracer.host import measuring, store
from tracer.host.processors import cores as cores
from tracer.records.environment import Peaks

_SECONDS = 3
"""About how long measuring takes."""


def peaks(
    threads: int = 0,
    *,
    anew: bool = False,
    folder: Path | None = None,
    announce: Callable[[str], None] = lambda text: None,
) -> Peaks:
    """Returns the peaks of this machine at `threads` threads; 0 is one per physical core.

    Measures them, which takes some seconds, if none are stored for this processor and these
    versions of numpy, numba and onnxruntime, or if `anew`. `announce` is called with a message
    before and after measuring. `folder` defaults to the user's cache folder. Values measured while
    other programs run never lower stored ones.
    """
    count = threads or cores()
    file = store.file(count, folder)
    stored = store.load(file)
    if stored is not None and not anew:
        return stored
    workers = "1 thread" if count == 1 else f"{count} threads"
    announce(f"measuring what this machine can do with {workers}, about {_SECONDS} s")
    measured = measuring.measure(count)
    if stored is not None and measured.is_busy:
        measured = measured.at_least(stored)
    if store.save(file, measured):
        announce(f"stored in {file}")
    else:
        announce(f"{file} cannot be written: the next command will measure again")
    return measured


def known(threads: int = 0, folder: Path | None = None) -> Peaks | None:
    """Returns the stored peaks, or None."""
    return store.load(store.file(threads or cores(), folder))


def correct(stored: Peaks, right: Peaks | None, folder: Path | None = None) -> None:
    """Stores the `right` peaks in place of `stored`; of None, the next command measures again.

    Peaks that are not those that are stored here change nothing.
    """
    file = store.file(stored.threads, folder)
    if store.load(file) != stored:
        return
    if right is None:
        store.forget(file)
    else:
        store.save(file, right)
