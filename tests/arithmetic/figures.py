"""How many kernels are replayed with onnxruntime's bits, over shipped models and those of others.

python -m tests.arithmetic.figures                    measures all models that are on this machine
python -m tests.arithmetic.figures --page FILE.md     writes the table of operators and levels, too
python -m tests.arithmetic.figures --model resnet20 --levels all --threads 1 --inputs 2

Models of others are those that `make wild` downloaded. Each model runs in a process of its own.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.wild.commands import feeds_of
from tests.wild.corpus import CORPUS, LIGHT, Wild, fetched
from tracer.arithmetic import runs
from tracer.arithmetic.known_rules import KnownRules
from tracer.arithmetic.rule import NotKnown
from tracer.errors import TracerError
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.graph.model import canonical_domain

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"(<!-- figures: begin -->\n).*?(<!-- figures: end -->)", re.DOTALL)


def main():
    """Prints a row for each model and level; writes the page and the list of unequal kernels."""
    options = _options()
    if options.measured:
        print(json.dumps(_measure(options)))
        return
    results = []
    for name, model in _models(options).items():
        for level in options.levels.split(","):
            for threads in map(int, options.threads.split(",")):
                result = _in_a_process(name, model, level, threads, options)
                results.append(result)
                print(_row(result), flush=True)
    equal, kernels = (sum(len(r.get(key, ())) for r in results) for key in ("equal", "kernels"))
    whole = {r["model"] for r in results} - {r["model"] for r in results if not r["is_whole"]}
    print(f"{equal} of {kernels} kernels ({equal / max(kernels, 1):.2%})")
    print(f"{len(whole)} models equal by SHA-256, at all levels: {', '.join(sorted(whole))}")
    if options.unequal:
        options.unequal.write_text("\n".join(_unequal(results)) + "\n")
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        table = "\n".join(_table(results, options.levels.split(",")))
        options.page.write_text(_BLOCK.sub(rf"\g<1>{table}\n\g<2>", text), encoding="utf-8")


def _models(options):
    """Models by name, with the path; those of packages as a `Wild`, if they were downloaded."""
    own = {str(p.relative_to(ROOT / "models")): p for p in sorted(ROOT.glob("models/*/*.onnx"))}
    others = {
        each.name: each
        for each in (*CORPUS, *LIGHT)
        if each in LIGHT or (options.folder / each.package / Path(each.file).name).exists()
    }
    return {n: m for n, m in (own | others).items() if options.model in n}


def _in_a_process(name, model, level, threads, options):
    path = fetched(model, options.folder) if isinstance(model, Wild) else model
    command = [
        sys.executable, "-m", "tests.arithmetic.figures", "--measured", str(path),
        "--model", name, "--levels", level, "--threads", str(threads),
        "--inputs", str(options.inputs), "--folder", str(options.folder),
        "--rules", str(options.rules),
    ]  # fmt: skip
    about = {"model": name, "level": level, "threads": threads, "is_whole": False}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, timeout=options.seconds
        )
    except subprocess.TimeoutExpired:
        return {**about, "error": f"more than {options.seconds} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {**about, "error": (done.stderr.strip().splitlines() or ["died"])[-1]}
    return {**about, **json.loads(lines[-1])}


def _measure(options):
    """Compares the kernels of one model on one input, and its outputs on all."""
    path, threads = Path(options.measured), int(options.threads)
    known = {each.name: each for each in (*CORPUS, *LIGHT)}
    wild = known.get(options.model, Wild("", "", "", ""))
    model, settings = loading.load(path), OrtSettings(optimization=options.levels, threads=threads)
    try:
        graph = runs.SavedGraph.of(model, settings)
    except TracerError as error:
        return {"error": error.what}
    rules = KnownRules(options.rules)
    feeds = feeds_of(wild, path)
    values = graph.runner()(feeds)
    begun = time.monotonic()
    verdicts = list(runs.compare_kernels(graph, rules.of, values))
    reveal_s = time.monotonic() - begun
    rules.store()
    del values
    kernels = [(_operator(each.node), each.is_equal, _reason(each)) for each in verdicts]
    result = {"kernels": kernels, "equal": [k for k in kernels if k[1]], "reveal_s": reveal_s}
    run, equal, replay_s, ort_s = runs.outputs_of(model, settings), 0, [], []
    try:
        for seed in range(options.inputs):
            feeds = feeds_of(wild, path, seed)
            begun = time.monotonic()
            outputs = runs.replay_graph(graph, rules.of, feeds).outputs
            middle = time.monotonic()
            expected = run(feeds)
            ort_s.append(time.monotonic() - middle)
            replay_s.append(middle - begun)
            equal += all(expected[n].tobytes() == outputs[n].tobytes() for n in expected)
    except NotKnown as reason:
        return {**result, "whole": str(reason)}
    return {
        **result, "whole": f"{equal} of {options.inputs}", "is_whole": equal == options.inputs,
        "ratio": min(replay_s) / min(ort_s),
    }  # fmt: skip


def _reason(verdict):
    """Why a kernel is not equal, without what differs from kernel to kernel."""
    if verdict.is_equal:
        return ""
    text = verdict.reason or f"the rule does not hold: {verdict.rule.text}"
    return re.sub(r": [\d.]+% of the results.*", "", text)


def _operator(node):
    domain = canonical_domain(node.domain).removeprefix("com.microsoft").removeprefix(".")
    return f"{domain}:{node.op_type}" if domain else node.op_type


def _row(result):
    about = f"{result['model']:45} {result['level']:5} {result['threads']}"
    if "error" in result:
        return f"{about}  {result['error']}"
    times = f"{result['reveal_s']:.1f} s, {result.get('ratio', 0):.0f} x"
    share = f"{len(result['equal'])}/{len(result['kernels'])} kernels"
    return f"{about}  {share}, outputs {result['whole']}, {times}"


def _unequal(results):
    """Yields the kernels that are not equal, the most frequent first, and the errors."""
    counted, where = Counter(), {}
    for r in results:
        for operator, is_equal, reason in r.get("kernels", ()):
            if not is_equal:
                key = (operator, r["level"], reason[:160])
                counted[key] += 1
                where.setdefault(key, {})[f"{r['model']}@{r['threads']}"] = None
    for key, number in counted.most_common():
        operator, level, reason = key
        yield f"{number:5} {operator:28} {level:5} {reason} -- {', '.join([*where[key]][:4])}"
    for r in results:
        if "error" in r or not r["is_whole"]:
            yield f"{r['model']} {r['level']} {r['threads']}: {r.get('error', r.get('whole'))}"


def _table(results, levels):
    """Yields the lines of the table: operators × levels."""
    counts = {level: (Counter(), Counter()) for level in levels}
    for result in results:
        for operator, is_equal, _ in result.get("kernels", ()):
            all_, equal = counts[result["level"]]
            all_[operator] += 1
            equal[operator] += is_equal
    yield from (f"| operator | {' | '.join(levels)} |", f"|---|{'---|' * len(levels)}")
    for operator in sorted({name for all_, _ in counts.values() for name in all_}):
        cells = [
            f"{equal[operator]:,} of {all_[operator]:,}" if all_[operator] else ""
            for all_, equal in counts.values()
        ]
        yield f"| {operator} | {' | '.join(cells)} |"


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.arithmetic.figures")
    parser.add_argument("--model", default="", help="only models with this in their name")
    parser.add_argument("--levels", default="none,all")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--inputs", type=int, default=10, help="inputs of whole models")
    parser.add_argument("--seconds", type=int, default=600, help="longest time of a model")
    parser.add_argument("--folder", type=Path, default=Path("build/wild"), help="of make wild")
    parser.add_argument("--page", type=Path, help="page whose table is written")
    parser.add_argument("--unequal", type=Path, help="file for the kernels that are not equal")
    parser.add_argument("--rules", type=Path, default=Path(tempfile.gettempdir()) / "rules")
    parser.add_argument("--measured", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
