"""`python -m tests.hostile`: every command meets every hostile model, as a process of its own."""

import argparse
import os
import queue
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack

from tests.hostile import attributes, bombs, declared, large, structure  # noqa: F401 - they fill CASES
from tests.hostile.commands import COMMANDS, meet, warmed_up
from tests.hostile.corpus import CASES
from tests.hostile.trial import VERDICTS, Warm


def main():
    """Prints what is wrong as it is found, then a table of verdicts; returns 1 if any is wrong."""
    options = _options()
    names = [name for name in CASES if options.case in name]
    commands = [each for each in COMMANDS if options.command in each.name]
    verdicts, trials = defaultdict(Counter), []
    met = _met(names, commands, options.jobs)
    for done, (name, command, outcome, *wrong) in enumerate(met):
        faults = [fault for each in wrong for fault in each]
        verdicts[command.name]["WRONG" if faults else outcome.verdict] += 1
        trials.append((outcome, f"{command.name}, {name}"))
        for fault in faults:
            print(f"{command.name}, {name}: {fault}", flush=True)
        if faults:
            print(f"    {outcome.err.strip()}", flush=True)
        if done % 200 == 0:
            print(f"{done} trials", file=sys.stderr, flush=True)
    _print(verdicts, trials, len(names))
    return int(any(counts["WRONG"] for counts in verdicts.values()))


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--case", default="", help="only models with this in their name")
    parser.add_argument("--command", default="", help="only commands with this in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="commands at a time")
    return parser.parse_args()


def _met(names, commands, jobs):
    """Yields name, command, outcome, faults and excesses of all trials."""
    with ExitStack() as stack:
        cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-"))
        servers = queue.SimpleQueue()
        for number in range(jobs):
            warm = stack.enter_context(Warm(cache))
            if number == 0:
                warmed_up(warm)
            servers.put(warm)

        def trials(name):
            warm = servers.get()
            try:
                return [(name, *trial) for trial in meet(warm, name, commands)]
            finally:
                servers.put(warm)

        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        for future in as_completed([pool.submit(trials, name) for name in names]):
            yield from future.result()


def _print(verdicts, trials, models):
    columns = [each for each in VERDICTS if any(counts[each] for counts in verdicts.values())]
    width = max(map(len, verdicts), default=0)
    print(f"\n{'':{width}}  " + "  ".join(columns))
    for command, counts in {**verdicts, "all": sum(verdicts.values(), Counter())}.items():
        row = (f"{counts[each]:{len(each)}}" for each in columns)
        print(f"{command:{width}}  " + "  ".join(row))
    slowest = max(trials, key=lambda trial: trial[0].seconds)
    largest = max(trials, key=lambda trial: trial[0].peak)
    print(f"\n{models} models, {len(trials)} commands")
    print(f"slowest: {slowest[0].seconds:.1f} s, {slowest[1]}")
    print(f"largest: {largest[0].peak >> 20} MiB, {largest[1]}")


if __name__ == "__main__":
    sys.exit(main())
