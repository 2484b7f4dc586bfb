"""`python -m tests.card -o card.json`: measures a card, part by part, within some minutes.

Each part runs in a process of its own, and the file is written after each. What the parts print is
in a file beside it, `card.log`. Without a card, the parts run what the processor can.
"""

import argparse
import ast
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib import util
from pathlib import Path

from tests.card import parts


def main(arguments=None):
    """Runs the parts that were asked for, prints a line for each, and returns 0."""
    options = _options(arguments)
    device = options.device or parts.device()
    if device == "cpu":
        print("no card" if not parts.has_card() else "on the processor, not the card", flush=True)
    names = options.part or [f"tests.card.{name}" for name in parts.PARTS]
    document = {"parts": {}}
    if options.part and options.output.exists():  # others keep what they measured before
        document = json.loads(options.output.read_text(encoding="utf-8"))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * options.minutes
    wants = {name: wanted_seconds(name) for name in names}
    for index, name in enumerate(names):
        left = max(end - time.monotonic(), 1.0)
        share = min(wants[name], left * wants[name] / sum(wants[each] for each in names[index:]))
        short = name.rpartition(".")[2]
        ending = run_part(name, share, device, options.output.with_suffix(".log"))
        document["parts"][short] = ending
        parts.write(document, options.output)
        print(f"{short:10} {ending['seconds']:6.1f} s  {_summary(ending)}", flush=True)
    return 0


def wanted_seconds(name):
    """Returns the `SECONDS` of a module without importing it; 1 if there is none.

    The import may take seconds or fail, and is the part's own.
    """
    spec = util.find_spec(name)
    if spec is None or spec.origin is None:
        return 1.0
    for line in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match line:
            case (
                ast.Assign(targets=[ast.Name("SECONDS")], value=value)
                | ast.AnnAssign(target=ast.Name("SECONDS"), value=ast.expr() as value)
            ):
                return float(ast.literal_eval(value))
    return 1.0


def run_part(name, seconds, device, log, grace=parts.GRACE):
    """Runs a part in a process; returns its `date`, `seconds`, and how it ended.

    That is a `result`, the reason for which it was `skipped`, or an `error`, with the `result` that
    it had kept if there is one.
    """
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="card-") as folder, log.open("ab") as output:
        written, kept = Path(folder, "ending.json"), Path(folder, "kept.json")
        output.write(f"== {name}\n".encode())
        output.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.card.child", name, str(seconds), str(written)],
            env={**_environment(name), parts.DEVICE: device, parts.KEPT: str(kept)},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(seconds + grace)
            death = f"the process ended with {process.returncode}: see {log.name}"
        except subprocess.TimeoutExpired:
            death = f"ended after {seconds + grace:.0f} s"
        finally:
            _end_group(process)
        ending = {"error": death}
        if kept.exists():
            ending |= json.loads(kept.read_text(encoding="utf-8"))
        if written.exists():
            ending = {**ending, "error": None, **json.loads(written.read_text(encoding="utf-8"))}
    ending = {key: value for key, value in ending.items() if value is not None}
    return {"date": date, "seconds": round(time.monotonic() - start, 1), **ending}


def _environment(name):
    """The variables of a part's process: the provider's has onnxruntime-gpu first in its path."""
    folder = os.environ.get(parts.ONNXRUNTIME)
    if folder is None or name != "tests.card.provider":
        return os.environ
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def _end_group(process):
    """Ends a part and the processes that it left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def _summary(ending):
    if "error" in ending:
        return f"error: {ending['error']}" + (" (in part measured)" if "result" in ending else "")
    return f"skipped: {ending['skipped']}" if "skipped" in ending else "measured"


def _options(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.card", description=__doc__)
    parser.add_argument("--minutes", type=float, default=6.0, help="longest time of all parts")
    parser.add_argument("--part", action="append", metavar="NAME", type=_module,
                        help=f"only this part; repeatable: {', '.join(parts.PARTS)}")  # fmt: skip
    parser.add_argument("--device", choices=("cuda", "cpu"), help="[default: the card if any]")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/card/card.json"))
    return parser.parse_args(arguments)


def _module(name):
    return name if "." in name else f"tests.card.{name}"


if __name__ == "__main__":
    sys.exit(main())
