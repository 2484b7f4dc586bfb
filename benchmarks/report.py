"""Processor time to draw a graph and to write a report, its size, and how quick it is to use.

The last needs a browser: the time until the first view is there, and until the page has changed
after a module was opened, and after a letter of a filter.
"""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tracer
from benchmarks._measure import counts, machine
from benchmarks._networks import deep
from tests.report.browser import Browser, missing, opened
from tracer.analyzers.views.report import script, style
from tracer.analyzers.views.report.layout import laid_out
from tracer.records.trace import Trace

RESNET = Path(__file__).parents[1] / "models/resnet_cifar/resnet20.onnx"

OPEN = "document.querySelector('.graph .closed .sign')?.dispatchEvent(" \
       "new MouseEvent('click', {bubbles: true}))"  # fmt: skip
FILTER = "(box => { box.value += 'n'; box.dispatchEvent(new Event('input', {bubbles: true})) })" \
         "(document.querySelector('.table input[type=search]'))"  # fmt: skip
PAINTED = """const done = arguments[0], begin = performance.now(); ACTION;
const painted = () => done(performance.now() - begin);
requestAnimationFrame(() => requestAnimationFrame(painted));"""


def main() -> None:
    """Measures and prints."""
    args = counts(__doc__, nodes=20_000, repeats=5, runs=3)
    print(machine())
    print(f"scripts and styles: {len((style() + script()).encode()) / 1e3:.0f} kB (target 100)")
    print(f"{'model':<22}{'drawing, s':>12}{'writing, s':>12}{'file, kB':>12}", end="")
    print(f"{'first view, s':>15}{'opening, ms':>13}{'filter, ms':>12}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        browser = None if missing() else Browser(stack.enter_context(opened()))
        for name, model in (("ResNet-20", RESNET), (f"{args.nodes:,} nodes", deep(args.nodes))):
            trace = tracer.profile(model, runs=args.runs, threads=1)
            print(f"{name:<22}{_written(trace, folder / 'r.html', args.repeats)}", end="")
            print(_used(browser, folder / "r.html", args.repeats) if browser else missing())


def _size(file: Path) -> int:
    return file.stat().st_size


def _written(trace: Trace, file: Path, repeats: int) -> str:
    drawing = _median(lambda: laid_out(trace.model.topology), repeats)
    writing = _median(lambda: trace.save(file, force=True), repeats)
    return f"{drawing:>12.2f}{writing:>12.2f}{_size(file) / 1e3:>12,.0f}"


def _used(browser: Browser, file: Path, repeats: int) -> str:
    """Returns the median seconds and milliseconds that a user waits."""
    waited: list[tuple[float, float, float]] = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        browser.open(file, fragment="#view=graph&by=node")
        first = time.perf_counter() - start
        waited.append((first, _painted(browser, OPEN), _painted(browser, FILTER)))
    first, opening, filtering = map(statistics.median, zip(*waited[1:], strict=True))
    return f"{first:>15.2f}{opening:>13.0f}{filtering:>12.0f}"


def _painted(browser: Browser, action: str) -> float:
    """Returns the milliseconds until the page is drawn after an action, in JavaScript."""
    elapsed = browser.driver.execute_async_script(PAINTED.replace("ACTION", action))
    return float(elapsed)


def _median(call: Callable[[], Any], repeats: int) -> float:
    """Returns the median processor time of a call, s, after one that is not counted."""
    call()
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
