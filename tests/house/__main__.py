"""Compares the house with `budget.toml`, prints what is above it: `python -m tests.house`."""

import sys
import tomllib
from pathlib import Path

from tests.house.measures import House

ROOT = Path(__file__).parents[2]
LONGEST_FILE, LONGEST_FUNCTION, PARAMETERS = 500, 60, 8


def excesses(root: Path = ROOT) -> list[str]:
    """Returns a line for each figure of the house that is above its budget."""
    house, budget = House(root), tomllib.loads((root / "budget.toml").read_text("utf-8"))
    lines, grain = budget["lines"], budget["grain"]
    packages, product = house.lines_of_packages(), sum(house.lines.values())
    rows = [(f"lines of {name}", lines.get(name, 0), packages[name]) for name in sorted(packages)]
    functions, once = house.functions(), house.named_once()
    figures = {
        "product": product,
        "product_and_beside": product + house.lines_beside(),
        "files": len(house.lines),
        "drawers": house.drawers(),
        "named_once_percent": round(100 * len(once) / functions, 1),
        "imports_percent": round(100 * house.import_lines() / product, 1),
        "bare_names": house.bare_names(),
        "long_files": [name for name, length in house.lines.items() if length > LONGEST_FILE],
        "long_functions": house.long_functions(LONGEST_FUNCTION),
        "wide_functions": house.wide_functions(PARAMETERS),
        "options_beside": house.options_beside(),
    }
    rows += [(name, grain[name], figure) for name, figure in figures.items()]
    return [line for name, limit, figure in rows if (line := _excess(name, limit, figure))]


def _excess(name: str, limit: float, figure: float | list[str]) -> str:
    if isinstance(figure, list):
        listed = "".join(f"\n    {item}" for item in figure)
        return f"{name}: {len(figure)}, allowed {limit}:{listed}" if len(figure) > limit else ""
    return f"{name}: {figure}, allowed {limit}" if figure > limit else ""


if __name__ == "__main__":
    above = excesses()
    print("\n".join(above) or "The house is within its budget.")
    sys.exit(bool(above))
