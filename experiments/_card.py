"""Adds what was measured on a card to a page that is there: columns of its tables, and a section.

`python -m tests.card -o FILE` measures it. The processor's figures stay as they are, and columns of
an earlier card are replaced.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import _page
from tracer.errors import InputError

GPU = "GPU: "
"""Begins the headers of the card's columns."""
_SECTION, _LAST = "## On a card", "## Beyond the original"


def measured(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns what the parts `machine` and `pages` measured. Raises InputError without them."""
    try:
        parts = json.loads(path.read_text("utf-8"))["parts"]
        return parts["machine"]["result"], parts["pages"]["result"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: holds no pages of a card ({type(error).__name__}: {error})",
            "Measure them on a machine with one: python -m tests.card -o FILE.",
        ) from error


def with_columns(
    text: str, heading: str, header: Sequence[str], cells: Mapping[str, Sequence[str]]
) -> str:
    """Returns the page with columns at the end of the first table below a heading.

    `cells` are those of each row, by the text of its first cell; what has no row gets one.
    """
    start = text.index("\n|", text.index(f"\n{heading}\n")) + 1
    end = text.index("\n\n", start)
    names, ends, *lines = (_cells(line) for line in text[start:end].splitlines())
    count = sum(not name.startswith(GPU) for name in names)
    rows = [line[:count] for line in lines]
    rows = [row for row in rows if any(row[1:])]  # an earlier card's alone has no cell
    known = {row[0].strip("`") for row in rows}
    rows += [[f"`{name}`"] + [""] * (count - 1) for name in cells if name not in known]
    empty = [""] * len(header)
    aligned = [name + " " * (end == "---") for name, end in zip(names, ends, strict=True)][:count]
    table = _page.table(
        [*aligned, *(f"{GPU}{name}" for name in header)],
        [[*row, *cells.get(row[0].strip("`"), empty)] for row in rows],
    )
    return text[:start] + table + text[end:]


def with_section(text: str, parts: Sequence[str]) -> str:
    """Returns the page with the section of the card, in place of an earlier one."""
    text = re.sub(rf"{_SECTION}\n.*?(?={_LAST})", "", text, flags=re.DOTALL)
    before, last, after = text.partition(_LAST)
    return before + "\n\n".join([_SECTION, *parts, last]) + after


def environment(machine: Mapping[str, Any]) -> str:
    """Returns the table of the card and its machine."""
    card, torch = machine.get("card") or {}, machine.get("torch") or {}
    facts = {
        "card": card.get("name"),
        "memory": card.get("memory.total"),
        "power limit": card.get("power.limit"),
        "driver": card.get("driver_version"),
        "CUDA": torch.get("cuda"),
        "cuDNN": torch.get("cudnn"),
        "torch": torch.get("version"),
        "Python": machine.get("python"),
        "processor": f"{machine.get('cpu')}, {machine.get('cpus_allowed')} available",
        "date": str(machine.get("date")).partition("T")[0],
    }
    return _page.table((" ", " "), ((name, fact or "unknown") for name, fact in facts.items()))


def add(
    card: Path, page: Path, with_card: Callable[[str, Mapping[str, Any], Mapping[str, Any]], str]
) -> None:
    """Adds what is in the file `card` to a page, by a function of the page's text."""
    page.write_text(with_card(page.read_text("utf-8"), *measured(card)), "utf-8")
    print(f"wrote {page}", flush=True)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
