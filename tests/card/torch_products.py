"""Products of torch on a device, each a function of rows (M, K) and rows (N, K)."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import ml_dtypes
import numpy as np
import torch
from torch.nn import functional

TYPES = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "fp32": torch.float32,
    "fp8-e4m3": torch.float8_e4m3fn, "fp8-e5m2": torch.float8_e5m2,
}  # fmt: skip
NUMPY = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32,
         "fp8-e4m3": ml_dtypes.float8_e4m3fn, "fp8-e5m2": ml_dtypes.float8_e5m2}  # fmt: skip
_WORDS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}
_UNUSED = {"tf32": 0, "fp32": 0, "fp16": 13, "bf16": 16}
"""Low bits of float32 that random operands of a format leave at 0; tf32 is read from all bits."""


@dataclass(frozen=True)
class Case:
    """A product of `dtype` with M rows, N columns and K terms.

    `op` is what torch is asked for, `options` how. The dtype of two formats is `first/second`. The
    operands, the bias and the scales are those of `seed`.
    """

    op: str
    dtype: str
    m: int
    n: int
    k: int
    options: tuple[str, ...] = ()
    seed: int = 48

    @property
    def name(self):
        """All that tells it from other cases."""
        return " ".join([self.op, self.dtype, f"{self.m}x{self.n}x{self.k}", *self.options])

    @property
    def formats(self):
        """The formats of rows and columns."""
        first, _, second = self.dtype.partition("/")
        return first, second or first

    @property
    def out(self):
        """The format of the results."""
        if "out=fp32" in self.options or self.dtype in ("tf32", "fp32") or self.op == "triton":
            return "fp32"
        return "bf16" if "fp8" in self.dtype else self.dtype

    @property
    def has_bias(self):
        """Whether a bias is added."""
        return self.op == "linear" and "bias" in self.options

    @lru_cache(maxsize=2)  # noqa: B019 (two of the largest, for candidates that are tried in turn)
    def operands(self):
        """Returns rows (M, K), rows (N, K) and the bias (N), float32, in their formats."""
        sides = [draw(self.seed + i, shape, form) for i, (shape, form) in enumerate(
            zip(((self.m, self.k), (self.n, self.k)), self.formats, strict=True))]  # fmt: skip
        return *sides, draw(self.seed + 2, (self.n,), self.out) if self.has_bias else None

    def scales(self):
        """Returns the factors of rows (M or 1) and columns (N or 1), float32; None without any."""
        if self.op != "scaled":
            return None
        if "rowwise" in self.options:
            return draw(self.seed + 3, (self.m,), "fp32"), draw(self.seed + 4, (self.n,), "fp32")
        scale = (0.37, 1.13) if "scales" in self.options else (1, 1)
        return tuple(np.array([each], np.float32) for each in scale)


def draw(seed, shape, form):
    """Returns random numbers of a format, float32: ±1.x times 2^-7 to 1.

    They come from the raw stream of PCG64, which numpy keeps for ever.
    """
    raw = np.random.PCG64(seed).random_raw(int(np.prod(shape))).reshape(shape)
    exponents = 127 - (raw >> np.uint64(40) & np.uint64(7)).astype(np.uint32)
    bits = (raw >> np.uint64(8) & np.uint64(0x807FFFFF)).astype(np.uint32) | exponents << 23
    if form in _UNUSED:
        return (bits >> _UNUSED[form] << _UNUSED[form]).view(np.float32)
    return bits.view(np.float32).astype(NUMPY[form]).astype(np.float32)


@dataclass
class TorchProduct:
    """A case on a device: `run` takes what `prepared` returns."""

    case: Case
    device: str
    bias: torch.Tensor | None = field(default=None, repr=False)
    scales: list[torch.Tensor] = field(default_factory=list, repr=False)

    def __post_init__(self):
        case = self.case
        if case.has_bias:
            bias = draw(case.seed + 2, (case.n,), case.out)
            self.bias = torch.from_numpy(bias).to(self.device, TYPES[case.out])
        scales = case.scales()
        if scales is not None:
            self.scales = [torch.from_numpy(each).to(self.device) for each in scales]
            if "rowwise" in case.options:
                self.scales = [self.scales[0][:, None], self.scales[1][None, :]]

    def plain(self):
        """Returns the same product with a bias of 0 and scales of 1, for probes."""
        other = TorchProduct(self.case, self.device)
        if other.bias is not None:
            other.bias = torch.zeros_like(other.bias)
        other.scales = [torch.ones_like(each) for each in other.scales]
        return other

    def prepared(self, left, right):
        """Returns two tensors of the case's types, laid out as its call wants them."""
        types = (TYPES[form] for form in self.case.formats)
        left, right = (
            side.to(self.device, kind).contiguous()
            for side, kind in zip((left, right), types, strict=True)
        )
        match self.case.op:
            case "mm" if "rows" in self.case.options:  # both matrices row after row
                return left, right.t().contiguous()
            case "bmm":
                batch = _number(self.case, "batch")
                return left.reshape(batch, -1, self.case.k), right.t()[None].repeat(batch, 1, 1)
            case "conv":
                side = _number(self.case, "kernel")
                shape = -1, side, side, self.case.k // side**2
                return tuple(each.reshape(shape).permute(0, 3, 1, 2) for each in (left, right))
            case "pointwise":
                image = left.reshape(4, -1, 8, self.case.k).permute(0, 3, 1, 2)
                return image, right.reshape(-1, 1, 1, self.case.k).permute(0, 3, 1, 2)
        return left, right

    def run(self, left, right):
        """Returns the product, as torch shapes it."""
        case = self.case
        with _settings(case):
            match case.op:
                case "mm" if "out=fp32" in case.options and left.dtype != torch.float32:
                    return torch.mm(left, right.t(), out_dtype=torch.float32)
                case "mm":
                    return torch.mm(left, right if "rows" in case.options else right.t())
                case "bmm":
                    return torch.bmm(left, right)
                case "linear":
                    return functional.linear(left, right, self.bias)
                case "conv" | "pointwise":
                    return functional.conv2d(left, right)
                case "scaled":
                    return torch._scaled_mm(
                        left, right.t(), *self.scales, out_dtype=TYPES[case.out],
                        use_fast_accum="fast" in case.options,
                    )  # fmt: skip
                case "triton":
                    from tests.card import triton_dot

                    return triton_dot.product(left, right, case)
        raise ValueError(case.op)

    def __call__(self, left, right):
        """Returns the product (M, N), in the format of the case, of rows of float32."""
        result = self.run(*self.prepared(left, right))
        if self.case.op in ("conv", "pointwise"):
            result = result.permute(0, 2, 3, 1)
        return result.reshape(-1, self.case.n)


def words(result):
    """Returns the bits of results, an array of uint16 or uint32."""
    bits = result.contiguous().view(_WORDS[result.dtype]).cpu().numpy()
    return bits.view(f"u{bits.itemsize}")


@contextmanager
def _settings(case):
    """Sets how torch may compute a product, and puts it back."""
    cuda = torch.backends.cuda.matmul
    names = [f"allow_{form}_reduced_precision_reduction" for form in ("fp16", "bf16")]
    before = [getattr(cuda, name) for name in names], torch.get_float32_matmul_precision()
    try:
        for name in names:
            setattr(cuda, name, "full" not in case.options)
        torch.set_float32_matmul_precision("high" if case.dtype == "tf32" else "highest")
        yield
    finally:
        for name, value in zip(names, before[0], strict=True):
            setattr(cuda, name, value)
        torch.set_float32_matmul_precision(before[1])


def _number(case, name):
    """Returns the number of an option such as `batch=8`."""
    return next(int(each.split("=")[1]) for each in case.options if each.startswith(f"{name}="))


def cases(device):
    """Returns the products to measure, the most telling first."""
    if device == "cpu":
        return [
            Case("mm", "fp32", 16, 16, 64), Case("mm", "bf16", 16, 16, 64),
            Case("linear", "fp16", 16, 16, 64, ("bias",)), Case("mm", "fp32", 4, 16, 4096),
            Case("scaled", "fp8-e4m3", 16, 16, 64, ("fast", "out=fp32")),
            Case("conv", "fp32", 16, 16, 72, ("kernel=3",)),
        ]  # fmt: skip
    found = [Case("triton", form, 64, 64, 256, options) for form, options in (
        ("fp16", ()), ("bf16", ()), ("tf32", ()), ("fp8-e4m3", ()), ("fp8-e5m2", ()),
        ("fp8-e4m3", ("promote=128",)),
    )]  # fmt: skip
    usual, halves = [(64, 64, 256), (256, 256, 1024)], ("fp16", "bf16")
    for shape in usual:
        found += [Case("mm", form, *shape) for form in (*halves, "tf32", "fp32")]
        found += [Case("mm", form, *shape, ("out=fp32",)) for form in halves]
        found += [Case("scaled", "fp8-e4m3", *shape, options) for options in
                  ((), ("fast",), ("out=fp32",), ("fast", "out=fp32"))]  # fmt: skip
    found += [
        Case("scaled", "fp8-e4m3", 256, 256, 1024, ("fast", "scales", "out=fp32")),
        Case("scaled", "fp8-e4m3", 256, 256, 1024, ("fast", "scales")),
        Case("scaled", "fp8-e4m3", 256, 256, 1024, ("fast", "rowwise")),
        Case("scaled", "fp8-e4m3", 256, 256, 1024, ("rowwise",)),
        Case("scaled", "fp8-e5m2/fp8-e4m3", 256, 256, 1024, ("fast", "out=fp32")),
        Case("scaled", "fp8-e4m3/fp8-e5m2", 256, 256, 1024, ("out=fp32",)),
        Case("scaled", "fp8-e4m3", 1024, 1024, 1024, ("fast",)),
        Case("scaled", "fp8-e4m3", 1024, 1024, 1024),
        Case("scaled", "fp8-e4m3", 16, 16, 4096, ("fast", "out=fp32")),
    ]  # fmt: skip
    for form in halves:
        found += [
            Case("linear", form, 64, 128, 256, ("bias",)),
            Case("linear", form, 1, 1024, 1024, ("bias",)),
            Case("linear", form, 4, 120, 400, ("bias",)),
            Case("bmm", form, 1024, 64, 64, ("batch=16",)),
            Case("bmm", form, 1024, 128, 512, ("batch=8",)),
            Case("conv", form, 64, 64, 576, ("kernel=3",)),
            Case("conv", form, 64, 16, 72, ("kernel=3",)),
            Case("pointwise", form, 256, 64, 64),
        ]  # fmt: skip
    found += [
        Case("mm", "fp16", 128, 128, 4096, ("out=fp32",)), Case("mm", "tf32", 128, 128, 4096),
        Case("linear", "tf32", 64, 128, 256, ("bias",)),
        Case("linear", "fp32", 4, 120, 400, ("bias",)),
        Case("bmm", "tf32", 1024, 64, 64, ("batch=16",)),
        Case("mm", "fp16", 256, 256, 256, ("rows",)), Case("mm", "tf32", 256, 256, 256, ("rows",)),
    ]  # fmt: skip
    for shape in [(1, 1024, 1024), (1024, 1024, 1024), (16, 16, 16), (33, 65, 77), (104, 40, 200),
                  (8, 256, 2048), (4096, 4096, 512), (128, 128, 128)]:  # fmt: skip
        found += [Case("mm", form, *shape) for form in ("fp16", "tf32", "bf16")]
    found += [Case("mm", "fp32", *shape) for shape in
              ((1, 1024, 1024), (1024, 1024, 1024), (16, 16, 16), (128, 128, 4096))]  # fmt: skip
    found += [Case("mm", "fp16", *shape, options) for options in ((), ("full",))
              for shape in ((16, 16, 4096), (128, 128, 4096))]  # fmt: skip
    return [
        *found, Case("linear", "fp16", 256, 512, 4096, ("bias",)),
        Case("mm", "bf16", 128, 128, 4096), Case("mm", "bf16", 128, 128, 4096, ("full",)),
        Case("mm", "fp16", 4096, 4096, 4096), Case("scaled", "fp8-e4m3", 4096, 4096, 4096),
    ]  # fmt: skip
