"""Experiment 5: the partial sums of an integer LeNet in accumulators of few bits.

python -m experiments.accumulators [--model lenet.int8.onnx --data cifar10]
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tracer
from experiments import _page
from experiments._evaluating import (
    ACCUMULATOR,
    BATCH,
    Sums,
    answered,
    evaluated,
    work_of,
)
from experiments._images import images
from experiments._page import Page
from tracer.accumulators.spec.orders import named
from tracer.accumulators.spec.policy import Policy
from tracer.analyzers.energy import Work, find
from tracer.analyzers.views import render
from tracer.graph import loading
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.opening import open_dataset
from tracer.inputs.request import Samples

MODEL = "models/lenet/lenet.int8.onnx"
OPERATIONS = {
    "conv1": (366_912, 352_800),
    "conv2": (249_600, 240_000),
    "fc1": (48_000, 48_000),
    "fc2": (10_080, 10_080),
    "fc3": (850, 840),
}
"""Published additions and multiplications of an image."""
ENERGIES = {18: 223_315_236, 17: 199_829_594}
ACCURACIES = {32: 53.40, 21: 53.40, 20: 53.40, 19: 53.40, 18: 53.48, 17: 52.02, 16: 45.21,
              15: 24.48}  # fmt: skip
BY_HAND = (18, 16, 17, 16, 17)
CHOSEN = {"A": ((18,), 53.48), "B": ((17,), 52.02), "C": (BY_HAND, 53.47)}
"""Approach: the original's widths, uniform or by layer, and accuracy; C was found by hand."""
ALSO_BY_HAND = ((19, 16, 17, 16, 17), 53.5)
ORDERS = ("channelwise", "sequential", "tree", "sorted")


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluates and writes the page."""
    parser = _page.parser(__doc__)
    parser.add_argument("--model", default=MODEL, help="a quantised LeNet")
    parser.add_argument("--data", default="digits", help="data set, such as digits or cifar10")
    parser.add_argument("--limit", type=int, default=None, help="number of images  [default: all]")
    parser.add_argument("--widths", type=int, nargs="+", default=list(range(24, 13, -1)))
    parser.add_argument("--budget", type=float, default=0.01, help="accepted loss of accuracy")
    args = parser.parse_args(argv)
    make(args.model, args.data, args.limit, args.widths, args.budget).write(args.out)


def make(path: str, data: str, limit: int | None, widths: Sequence[int], budget: float) -> Page:
    """Returns the page, for one model and one data set."""
    model = loading.load(path)
    dataset = open_dataset(data, model, limit=limit)
    work = work_of(model)
    sums = answered(model, dataset, work, widths, budget)
    narrow = max(sums.answer.uniform.widths[0] - 1, 2) if sums.answer.uniform else widths[-1]
    parts = [
        f"LeNet with 8-bit weights and activations on {sums.answer.samples:,} images of {data}. "
        "After each addition, the partial sum is clipped to the range of the accumulator. The "
        "window of each input channel is summed first, then the channels, then the bias. B bits "
        "hold −2^B to 2^B − 1: as in the original, the sign is not counted.",
        "## Commands",
        _commands(path, data, limit, widths, narrow),
        "## Operations and energy",
        operations(model, work),
        energies(work),
        "## Partial sums",
        ranges(sums),
        "## One width for all layers",
        sweep(sums),
        "## Which widths to build",
        choices(sums, work),
        "## Which images overflow",
        images(model, dataset, sums),
        "## Where the sums lie",
        f"At {narrow} bits, one less than the smallest acceptable uniform width. Layers are in the "
        "order of the tables. Inputs of later layers come from layers whose sums were clipped:",
        _page.picture("5-accumulators.png", f"partial sums of every layer, and {narrow} bits"),
        "## Other accumulators",
        others(model, dataset, narrow),
        "## Beyond the original",
        _page.bullets(*_learned(sums, work)),
    ]
    return Page("5-accumulators", "Experiment 5: narrow accumulators in an integer LeNet", parts,
                {"5-accumulators.png": _histograms(model, dataset, narrow)})  # fmt: skip


def operations(model: Model, work: Work) -> str:
    """Returns additions and multiplications of each layer, with the published numbers."""
    header = ("layer ", "adds", "muls", "published: adds", "muls")
    counts = counted(model, work)
    rows = ((name, *(f"{n:,}" for n in (*pair, *OPERATIONS.get(name, ()))))
            for name, pair in counts.items())  # fmt: skip
    return _page.table(header, rows)


def counted(model: Model, work: Work) -> dict[str, tuple[int, int]]:
    """Returns additions and multiplications of an image, by module."""
    modules = {node.key: node.module or node.key for node in model.nodes}
    pairs = zip(work.adds.astype(int).tolist(), work.muls.astype(int).tolist(), strict=True)
    return {modules[key]: pair for key, pair in zip(work.nodes, pairs, strict=True)}


def energies(work: Work) -> str:
    """Returns the energy of uniform widths, with the published values."""
    lab = find("lab")
    listed = "; ".join(
        f"{bits} bits {lab.total(work, bits):,.0f} (published: {published:,})"
        for bits, published in ENERGIES.items()
    )
    return f"Energy of an image, 64 (B/8)² per multiplication and B per addition: {listed}."


def ranges(sums: Sums) -> str:
    """Returns the range of the exact partial sums of each layer, and the widths it needs."""
    header = (
        "layer ", "lowest", "highest", "bits for these", "bits for 99 % of the sums",
        "bits for any input",
    )  # fmt: skip
    rows = []
    for layer, summed in zip(sums.layers, sums.answer.sums, strict=True):
        tally = summed.tally
        low, high = int(tally.acc_min.min()), int(tally.acc_max.max())
        observed = int(tally.bits_observed.max())
        rows.append(
            (layer, f"{low:,}", f"{high:,}", observed, _enough(tally, 0.99), summed.guaranteed)
        )
    return _page.table(header, rows) + (
        f"\n\nAll layers together: {_span(sums)}. In the original: −265,304 to 267,554; most sums "
        "lay within ±110,000."
    )


def _span(sums: Sums) -> str:
    tallies = [layer.tally for layer in sums.answer.sums]
    low = min(int(tally.acc_min.min()) for tally in tallies)
    high = max(int(tally.acc_max.max()) for tally in tallies)
    return f"{low:,} to {high:,}".replace("-", "−")


def _enough(tally: Any, share: float) -> int:
    """Returns the least width at which this share of the outputs does not overflow."""
    outputs = int(tally.outputs.sum())
    bits = int(tally.bits_observed.max())
    while bits > 2 and tally.overflow(bits - 1).overflow_outputs.sum() <= (1 - share) * outputs:
        bits -= 1
    return bits


def sweep(sums: Sums) -> str:
    """Returns accuracy, overflow and energy of each uniform width, with the original accuracy."""
    columns = {"bits": "{bits}", "accuracy": "{score:.2%}", "sums that overflow": "{over:.2%}",
               "images with an overflow": "{images}", "energy": "{energy:,.0f}",
               "original: accuracy": "{published}"}  # fmt: skip
    rows = []
    for row in sums.answer.rows:
        overflows = row.overflows.values()
        outputs = sum(layer.outputs for layer in overflows)
        over = sum(layer.overflow_outputs for layer in overflows) / outputs
        overflowing = int((sums.images > row.bits).sum())
        published = ACCURACIES.get(row.bits)
        rows.append(
            {"bits": row.bits, "score": row.score, "over": over, "energy": row.energy,
             "images": f"{overflowing:,} of {len(sums.images):,}",
             "published": f"{published:.2f}%" if published else ""}
        )  # fmt: skip
    return _page.records(columns, rows)


def choices(sums: Sums, work: Work) -> str:
    """Returns the three approaches beside the original's: widths, accuracy, energy."""
    answer = sums.answer
    ours = {
        "wide enough for any input": ((answer.guaranteed,), answer.score),
        "A: wide enough for these images": ((answer.observed,), answer.score),
    }
    if answer.uniform:
        ours["B: one width within the budget"] = answer.uniform.widths[:1], answer.uniform.score
    if answer.each:
        ours["C: a width for each layer within the budget"] = answer.each.widths, answer.each.score
    rows = []
    for name, (widths, score) in ours.items():
        original = CHOSEN.get(name[0])
        theirs = ("", "", "") if original is None else _choice(work, original[0], original[1] / 100)
        rows.append((name, *_choice(work, widths, score), *theirs))
    header = ("approach ", "bits", "accuracy", "energy", "original: bits", "accuracy", "energy")
    widths, accuracy = ALSO_BY_HAND
    return _page.table(header, rows) + (
        f"\n\nWidths are of {', '.join(sums.layers)}. The search needed {len(answer.evaluations)} "
        "evaluations; the original's widths of C were found by hand, as were "
        f"{', '.join(map(str, widths))} at {accuracy} %, which cost {_energy(work, widths):,.0f}. "
        "Both energies count the same operations. The original's range needs "
        "19 bits, so its A clips the extremes; its B loses 1.4 points."
    )


def _choice(work: Work, widths: Sequence[int], score: float) -> tuple[str, str, str]:
    each = tuple(widths) if len(widths) > 1 else tuple(widths) * len(work.nodes)
    return ", ".join(map(str, widths)), f"{score:.2%}", f"{_energy(work, each):,.0f}"


def _energy(work: Work, widths: Sequence[int]) -> float:
    return find("lab").total(work, dict(zip(work.nodes, widths, strict=True)))


def others(model: Model, dataset: Dataset, bits: int) -> str:
    """Returns accuracy and widths for other orders of summation and for wrapping."""
    accumulators = {
        f"clipped, {order}": replace(ACCUMULATOR, order=named(order)) for order in ORDERS
    }
    accumulators["wrapped, channelwise"] = replace(ACCUMULATOR, overflow="wrap")
    rows = []
    for name, accumulator in accumulators.items():
        evaluator = evaluated(model, dataset, accumulator, BATCH)
        layers = evaluator.baseline.accumulations.values()
        score = evaluator.evaluate(dict.fromkeys(evaluator.nodes, bits)).score
        observed = max(int(layer.tally.bits_observed.max()) for layer in layers)
        rows.append((name, f"{score:.2%}", observed, max(layer.guaranteed for layer in layers)))
    header = ("sums are ", f"accuracy at {bits} bits", "bits for these images", "for any input")
    return _page.table(header, rows)


def _histograms(model: Model, dataset: Dataset, bits: int) -> bytes:
    """Returns a PNG of histograms of the sums of each layer at one width."""
    policy = Policy.of(replace(ACCUMULATOR, bits=bits))
    samples = Samples(dataset.name, dataset.limit)
    trace = tracer.interpret(model, accumulator=policy, inputs=samples, batch=BATCH)
    return render(trace, "png")


def _commands(path: str, data: str, limit: int | None, widths: Sequence[int], narrow: int) -> str:
    few = "" if limit is None else f" --limit {limit}"
    return _page.code(
        f"tracer count {path} --convention channelwise",
        f"tracer interpret {path} --accumulator {narrow} --magnitude --order channelwise \\",
        f"    --bias last --data {data}{few} --batch {BATCH} -o sums.png",
        f"tracer interpret {path} --accumulator {narrow + 1} --magnitude --order channelwise \\",
        f"    --bias last --data {data}{few} --by sample -o overflow.csv",
        f"python -m experiments.accumulators --model {path} --data {data}{few} "
        f"--widths {' '.join(map(str, widths))}  # this page",
    )


def _learned(sums: Sums, work: Work) -> list[str]:
    answer = sums.answer
    largest = work.nodes[int(work.muls.argmax())]
    names: Mapping[str, str] = dict(
        zip((layer.node for layer in answer.sums), sums.layers, strict=True)
    )
    uniform = _energy(work, (17,) * len(work.nodes))
    points = [
        f"The widths {', '.join(map(str, BY_HAND))} chosen by hand cost "
        f"{_energy(work, BY_HAND) / uniform:.3f} times as much as a uniform width of 17: one bit "
        f"more in {names[largest]}, which has most of the operations, outweighs two layers with "
        "one bit less. The search minimises the energy itself, so its widths never cost more than "
        "the best uniform width.",
        f"{answer.guaranteed} bits are guaranteed for any input, from the weights alone; these "
        f"images need {answer.observed}, because of {names[answer.limiting]}.",
        "One run over all data counts the overflows at every width; only batches with an overflow "
        "run again, from the first layer that overflows. In the original each evaluation took "
        "4.5 minutes.",
        "The table above measures the effect of the order of summation.",
    ]
    if answer.uniform:
        points.append(
            f"The trend is the same as in the original: the range needs {answer.observed} bits, "
            f"and the accuracy needs {answer.uniform.widths[0]} (original: 18 and 17). Below, "
            "accuracy falls with each bit. The numbers of bits depend on the images."
        )
    if answer.uniform and answer.each:
        saved = 1 - answer.each.energy / answer.uniform.energy
        points.append(f"Widths by layer save {saved:.1%} of the energy of the best uniform width.")
    return points


if __name__ == "__main__":
    _page.run(main)
