"""How numpy, torch and OpenVINO multiply on this processor, revealed from outside.

python -m tests.arithmetic.libraries                         prints the table
python -m tests.arithmetic.libraries --page FILE.md          writes it on a page, too
python -m tests.arithmetic.libraries --only "torch conv"     reveals those with both words alone

Each library runs on one thread. A product of MxKxN reveals the sum of its first element.
"""

import argparse
import functools
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np

import tracer

_BLOCK = re.compile(r"(<!-- libraries: begin -->\n).*?(<!-- libraries: end -->)", re.DOTALL)
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_SHAPES = ((1, 8), (8, 8), (8, 1))
_IMAGE = 3
"""Rows and columns of the image of a convolution."""


def numpy_products():
    """Yields products of numpy: its name, M and N (none of a sum), operands and the function."""
    for kind in ("float32", "float64"):
        yield "dot", None, kind, np.dot
        yield "add.reduce", None, kind, lambda a: np.add.reduce(a)
        yield "einsum i,i->", None, kind, lambda a, b: np.einsum("i,i->", a, b)
        for m, n in _SHAPES:
            yield "matmul", (m, n), kind, _matrices(np.matmul, np.ascontiguousarray, m, n)
    yield "add.reduce", None, "float16", lambda a: np.add.reduce(a)


def torch_products():
    """Yields products of torch, like `numpy_products`; operands are copied, and so aligned."""
    import torch

    functional, half = torch.nn.functional, {"bf16": torch.bfloat16, "float16": torch.float16}

    def held(kind):
        return lambda values: torch.tensor(values, dtype=half.get(kind))

    def bmm(a, b):
        return torch.bmm(a.expand(4, *a.shape), b.expand(4, *b.shape))[0]

    def linear(kind, a, b, bias):
        rows, weights = (held(kind)(np.repeat(each[None], 8, 0)) for each in (a, b))
        return float(functional.linear(rows, weights, held(kind)(np.full(8, bias)))[0, 0])

    def conv2d(a, b):
        image = held("float32")(a)[None, :, None, None].repeat(1, 1, _IMAGE, _IMAGE)
        weights = held("float32")(b)[None, :, None, None].repeat(8, 1, 1, 1)
        return float(functional.conv2d(image, weights)[0, 0, 1, 1])

    for m, n in _SHAPES:
        yield "mm", (m, n), "float32", _matrices(torch.mm, held("float32"), m, n)
    for kind in ("float64", *half):
        yield "mm", (8, 8), kind, _matrices(torch.mm, held(kind), 8, 8)
    for kind in ("float32", "bf16"):
        yield "sum", None, kind, lambda a, kind=kind: float(held(kind)(a).sum())
    yield "bmm of 4", (8, 8), "float32", _matrices(bmm, held("float32"), 8, 8)
    for kind in ("float32", "bf16"):
        yield "linear with a bias", (8, 8), kind, functools.partial(linear, kind)
    yield "conv2d of 3x3 by 1x1", (9, 8), "float32", conv2d
    yield "_int_mm", (32, 32), "int8", _matrices(torch._int_mm, held("int8"), 32, 32)


def openvino_products():
    """Yields products of OpenVINO on the CPU, like `numpy_products`."""
    import openvino
    from openvino import opset13

    config = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}

    @functools.cache
    def compiled(build, *shapes):
        inputs = [opset13.parameter(shape, np.float32) for shape in shapes]
        model = openvino.Model([build(*inputs)], inputs, "product")
        return openvino.Core().compile_model(model, "CPU", config)

    def matmul(a, b):
        return opset13.matmul(a, b, False, False)

    def convolution(a, b):
        return opset13.convolution(a, b, [1, 1], [0, 0], [0, 0], [1, 1])

    def run(build, a, b):
        return compiled(build, a.shape, b.shape)([a, b])[0]

    def convolve(a, b):
        image = np.array(np.broadcast_to(a[None, :, None, None], (1, len(a), _IMAGE, _IMAGE)))
        weights = np.array(np.broadcast_to(b[None, :, None, None], (8, len(b), 1, 1)))
        return float(run(convolution, image, weights)[0, 0, 1, 1])

    for m, n in _SHAPES:
        multiply = functools.partial(run, matmul)
        yield "MatMul", (m, n), "float32", _matrices(multiply, np.ascontiguousarray, m, n)
    yield "Convolution of 3x3 by 1x1", (9, 8), "float32", convolve


LIBRARIES = {"numpy": numpy_products, "torch": torch_products, "openvino": openvino_products}


def _matrices(multiply, held, m, n):
    """Returns a function of two vectors, which are all rows and all columns of matrices."""

    def product(a, b):
        rows, columns = np.repeat(a[None], m, 0), np.repeat(b[:, None], n, 1)
        return float(multiply(held(rows), held(columns))[0, 0])

    return product


def main():
    """Prints the table, and writes it on the page."""
    options = _options()
    if options.library:
        for row in _rows(options):
            print(*row, sep="\t", flush=True)
        return
    found = {}
    for library in LIBRARIES:
        try:
            version = metadata.version(library)
        except metadata.PackageNotFoundError:
            found[library, "", "", "not installed", ""] = [""]
            continue
        command = [sys.executable, "-m", "tests.arithmetic.libraries", "--library", library]
        command += ["--only", options.only, "--terms", options.terms]
        environment = {**os.environ, **_ONE_THREAD}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
            for line in run.stdout:
                print(line, end="", flush=True)
                name, size, kind, rule, equal = line.rstrip("\n").split("\t")
                found.setdefault((f"{library} {version}", name, kind, rule, equal), []).append(size)
    table = list(_table(found))
    print("\n".join(table))
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        block = "\n".join(table)
        text = _BLOCK.sub(lambda match: f"{match[1]}{block}\n{match[2]}", text)
        options.page.write_text(text, encoding="utf-8")


def _table(found):
    """Yields the lines of the table from the sizes of each library, product and rule."""
    command = "python -m tests.arithmetic.libraries --page docs/last-bit.md"
    yield from (f"Generated by `{command}` on {_processor()}.", "")
    yield "| library | product | operands | MxKxN, or K | rule | equal bits |"
    yield "|---|---|---|---|---|---|"
    for (library, name, kind, rule, equal), sizes in found.items():
        yield f"| {library} | {name} | {kind} | {', '.join(sizes)} | {rule} | {equal} |"


def _rows(options):
    """Yields the cells of a row for each product of a library and each K."""
    for name, shape, kind, function in LIBRARIES[options.library]():
        about = f"{options.library} {name} {kind}"
        if not all(word in about for word in options.only.split()):
            continue
        for terms in map(int, options.terms.split(",")):
            size = f"{shape[0]}x{terms}x{shape[1]}" if shape else str(terms)
            result = tracer.reveal(function, terms, operands=kind, in_process=True)
            yield name, size, kind, _rule(result), f"{result.vectors:,}" if result.is_known else ""


def _rule(result):
    """Returns a rule as its spelling, if it is an accumulator, and else in words."""
    if not result.is_known:
        return f"not known: {result.reason}"
    if result.spec is None:
        return result.rule
    rounded = result.facts.get("result")
    ends = f"; the last sum is rounded to {rounded}" if rounded else ""
    has_bias = "sum" in result.facts and "bias=" not in result.spec
    return f"`{result.spec}`{ends}" + (f"; the bias {result.facts['bias']}" if has_bias else "")


def _processor():
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return names[0]


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.arithmetic.libraries")
    parser.add_argument("--only", default="", help="words of library, product and operands")
    parser.add_argument("--terms", default="64,256", help="numbers of terms, K")
    parser.add_argument("--page", type=Path, help="page whose table is written")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
