"""Kills commands at random moments; the exit code is 1 if one left anything or lost a result.

python -m tests.durability [--kills 100] [--others 100] [--seed 1] [--folder FOLDER]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.durability import campaign
from tests.durability.commands import COMMANDS, SWEEP
from tests.durability.killing import Place


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills commands at random moments.")
    parser.add_argument("--kills", type=int, default=100, help="kills of a what-if sweep")
    parser.add_argument("--others", type=int, default=100, help="kills of all other commands")
    parser.add_argument("--seed", type=int, default=1, help="seed of the moments")
    parser.add_argument("--folder", type=Path, help="folder to work in [default: a temporary one]")
    chosen = parser.parse_args()
    shares = [(SWEEP, chosen.kills)]
    shares += [(command, -(-chosen.others // len(COMMANDS))) for command in COMMANDS]
    found: list[campaign.Kill] = []
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        for command, count in shares:
            if count == 0:
                continue
            model = campaign.undisturbed(command, Place(Path(folder)))
            for kill in campaign.kills(model, Path(folder), count, chosen.seed):
                found.append(kill)
                wrong = f" {kill}" if campaign.is_wrong(kill) else ""
                print(
                    f"{len(found):4} {command.name} {kill.victim} at {kill.seconds:.2f} s{wrong}",
                    flush=True,
                )
    print(campaign.table(found))
    return int(any(map(campaign.is_wrong, found)))


if __name__ == "__main__":
    sys.exit(main())
