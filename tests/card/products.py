"""Products of torch, their bits, and the rule of each: how the device adds its terms.

First the device computes: results of random operands, which are known by their seed, and probes of
the order. Then the rule is sought by the project's own emulation, and holds only if it gives the
same bits. What is kept suffices to repeat that without the device.
"""

import base64
import hashlib
import json
import sys
import threading
import time
import traceback
from dataclasses import asdict

import numpy as np
import torch

from tests.card import orders, parts, rules
from tests.card.torch_products import Case, TorchProduct, cases, words
from tracer.interpreter.compiled_code import loaded

SECONDS: float = 70
PROBES = 1.5
"""Seconds of probes of one product at most."""
KEPT, COMPARED = 16, 48
"""Rows and columns whose results are kept, and those that are compared on the machine."""


def measure(seconds):
    """Returns what each product computed, and its rule."""
    end = time.monotonic() + seconds
    sys.setrecursionlimit(20000)
    compiling = threading.Thread(target=_compile)
    compiling.start()
    device = parts.device()
    products = [TorchProduct(case, device) for case in _guarded(cases(device))]
    found = []
    for product in products:
        if time.monotonic() > end - 0.35 * seconds:
            break
        found.append(observed(product))
        parts.keep({"products": [_kept(each[0]) for each in found]})
    left_out = [product.case.name for product in products[len(found) :]]
    kernels = kernel_names([product for product, each in zip(products, found, strict=False)
                            if "error" not in each[0]]) if device == "cuda" else {}  # fmt: skip
    compiling.join()
    for record, want in found:
        record["kernels"] = kernels.get(record["name"], [])
        if want is not None and time.monotonic() < end - 3:
            record |= explained(record, want)
        order = record.pop("order", None)  # the rule has it
        if "rule" not in record and order is not None:
            record["order"] = json.dumps(order, separators=(",", ":"))
    parts.keep({"products": [each[0] for each in found], "left_out": left_out})
    return {"products": [each[0] for each in found], "left_out": left_out,
            "operands": operand_rounding(device)}  # fmt: skip


def _kept(record):
    """Returns a record whose order is text."""
    return record | {"order": json.dumps(record["order"])} if "order" in record else record


def _compile():
    for name in ("singles", "blocks", "sequential"):
        loaded(name, "tracer.accumulators.floats.kernels")


def observed(product):
    """Returns the record of a product, and the results to compare; None of these if it failed."""
    case = product.case
    record = {"name": case.name, "case": asdict(case)}
    try:
        left, right, _ = case.operands()
        sides = [torch.from_numpy(side).to(product.device) for side in (left, right)]
        result = product(*sides)
        bits = words(result)
        little = bits.astype(bits.dtype.newbyteorder("<"))
        record["sha256"] = hashlib.sha256(little.tobytes()).hexdigest()
        record["repeats"] = bool((words(product(*sides)) == bits).all())
        record["kept"] = encoded(bits[np.ix_(*picked(case, KEPT))])
        want = values(bits[np.ix_(*picked(case, COMPARED))], case.out)
    except Exception as error:
        return record | failure(error), None
    probes = orders.Probes(product.plain(), PROBES)
    for name, probe in (("order", probes.packed_order), ("kept_bits", probes.kept_bits)):
        try:
            record[name] = probe()
        except orders.NoOrder as reason:
            record[f"no_{name}"] = str(reason)
        except Exception as error:
            record[f"no_{name}"] = failure(error)
    if "order" not in record:
        probes.end = time.monotonic() + PROBES / 2
        record["sizes"] = probes.profile()
    record["probes"] = probes.count
    return record, want


def explained(record, want):
    """Returns the rule of a record and the share of results that have its bits.

    The order is that of the probes, or one of the usual ones, by trial.
    """
    case = Case(**{**record["case"], "options": tuple(record["case"]["options"])})
    places, by = picked(case, COMPARED), "trial"
    try:
        rule, share = None, 0.0
        if "order" in record:
            (rule, share), by = rules.find(case, record["order"], *places, want), "probes"
        if share < 1:  # other tiles may have another order than that of the probes
            other = rules.find(case, None, *places, want)
            if other[1] > share:
                (rule, share), by = other, "trial"
        if rule is None:
            return {"equal": 0.0}
        is_sure = share == 1 and (by == "probes" or case.out == "fp32")
        found = {"rule": rule.plain(), "by": by, "equal": share, "text": rule.text(case),
                 "spec": rule.spec(case) if is_sure else None}  # fmt: skip
        if share < 1:
            found["unequal"] = _unequal(rule, case, places, want)
    except Exception as error:
        return failure(error)
    return found


def _unequal(rule, case, places, want):
    """Returns where results differ from a rule's, by row, and five of them in hexadecimal."""
    got = rule.results(case, *places)
    wrong = ~rules.same(got, want)
    rows, columns = places
    return {
        "rows": ["".join("01"[int(each)] for each in row) for row in wrong],
        "some": [
            [int(rows[r]), int(columns[c]), float(got[r, c]).hex(), float(want[r, c]).hex()]
            for r, c in np.argwhere(wrong)[:5]
        ],
    }


def kernel_names(products):
    """Returns the names of the kernels that each product takes, by the name of its case."""
    from torch.profiler import ProfilerActivity, profile, record_function

    prepared = []
    for product in products:
        sides = [torch.from_numpy(side) for side in product.case.operands()[:2]]
        prepared.append((product, product.prepared(*sides)))
    torch.cuda.synchronize()
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for product, sides in prepared:
                with record_function(f"case {product.case.name}"):
                    product.run(*sides)
                    torch.cuda.synchronize()
                    time.sleep(2e-4)
        return names_by_case(profiler.events())
    except Exception as error:
        return {"error": failure(error)}


def names_by_case(events):
    """Returns the names of the events on a device within each range `case NAME` on the host."""

    def is_device(event):
        return "cuda" in str(event.device_type).lower()

    ranges = [
        (event.time_range.start, event.time_range.end, event.name.removeprefix("case "))
        for event in events if event.name.startswith("case ") and not is_device(event)
    ]  # fmt: skip
    found = {name: [] for _, _, name in ranges}
    for event in events:
        if not is_device(event) or event.name.startswith(("case ", "Memcpy", "Memset")):
            continue
        for start, end, name in ranges:
            if start <= event.time_range.start <= end:
                found[name].append(event.name)
    return found


def operand_rounding(device):
    """Returns 1 + m 2^-23 times 1 by tf32, for some m: how operands lose their low 13 bits."""
    numerators = [1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2FFF, 0x3000, 0x3001]
    case = Case("mm", "tf32", 16, 16, 16)
    left, right = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    left[: len(numerators), 0] = 1 + np.array(numerators) * 2.0**-23
    right[:, 0] = 1
    try:
        result = TorchProduct(case, device)(torch.from_numpy(left), torch.from_numpy(right))
        bits = words(result)[: len(numerators), 0]
    except Exception as error:
        return failure(error)
    return {f"{0x3F800000 + m:08x}": f"{int(each):08x}"
            for m, each in zip(numerators, bits, strict=True)}  # fmt: skip


def picked(case, count):
    """Returns the rows and columns that stand for a result: from the first to the last."""
    rows, columns = (
        np.unique(np.linspace(0, size - 1, min(count, size)).round().astype(int))
        for size in (case.m, case.n)
    )
    return rows, columns


def encoded(bits):
    """Returns bits of results as text."""
    little = bits.astype(bits.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode()


def decoded(text, case):
    """Returns the results that were kept of a case, float32."""
    kind = np.dtype("<u4" if case.out == "fp32" else "<u2")
    shape = [len(each) for each in picked(case, KEPT)]
    return values(np.frombuffer(base64.b64decode(text), kind).reshape(shape), case.out)


def values(bits, form):
    """Returns numbers of a format, float32, given their bits."""
    if form == "fp32":
        return bits.astype(np.uint32).view(np.float32)
    if form == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.uint16).view(np.float16).astype(np.float32)


def failure(error):
    """Returns an error as JSON holds it."""
    return {"error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc().splitlines()[-6:]}  # fmt: skip


def _guarded(found):
    """Leaves out repeated cases."""
    return list({case.name: case for case in found}.values())
