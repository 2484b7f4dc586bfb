"""Nests of loops as orders of additions.

Accelerators are described by the loops that they run. A loop counts iterations: `ic:16` is `for i
in range(16)`. Of several loops over one axis, an outer one steps over all that the inner ones take,
as in Timeloop (ISPASS 2019); where sizes do not divide, the last iterations are cut off.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from tracer.accumulators.spec import orders
from tracer.errors import UsageError
from tracer.support.types import Array
from tracer.text import ask, suggest

_KERNEL = ("kz", "ky", "kx")
_AXES = ("ic", *_KERNEL)
"""Loops over the axes of `Terms.shape`."""
_OUTPUTS = ("n", "g", "oc", "oz", "oy", "ox")
"""Loops over outputs and groups, each of which has sums of its own."""
_OTHER_NAMES = {"c": "ic", "kd": "kz", "kh": "ky", "kw": "kx", "m": "oc", "oh": "oy", "ow": "ox"}


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop with the size and the register of a `level`; without a size it takes what is left.

    Iterations that are `parallel` are summed apart, then added up. Raises UsageError for another
    name, a stride, and a loop over outputs that has a register.
    """

    name: str
    level: orders.Level = field(default_factory=lambda: orders.Level(None))
    parallel: bool = False

    def __post_init__(self) -> None:
        if self.name not in _AXES + _OUTPUTS:
            other = _OTHER_NAMES.get(self.name.lower())
            near = ask([other]) if other else suggest(self.name, _AXES + _OUTPUTS)
            raise UsageError(
                f"'{self.name}' is not a loop of a nest",
                f"{near}Loops: {', '.join(_AXES)}; of outputs: {', '.join(_OUTPUTS)}.",
            )
        if self.level.stride > 1 or (self.name in _OUTPUTS and self.level.is_own):
            raise UsageError(
                f"a loop {self}",
                "No loop has a stride, and one over outputs adds nothing up in a register.",
            )

    @classmethod
    def read(cls, text: str) -> "Loop":
        """Returns the loop of a spelling as `ic`, `ic:16`, `ic:16:24:wrap` or `ic:16:parallel`."""
        name, *others = text.strip().split(":")
        is_parallel = others[-1:] == ["parallel"]
        try:
            level = orders.Level.read(
                ":".join(others[:-1] if is_parallel else others) or orders.ALL
            )
        except UsageError as error:
            raise UsageError(f"loop {text}: {error.what}", error.hint) from error
        return cls(name, level, is_parallel)

    def __str__(self) -> str:
        level = [] if self.level == orders.Level(None) else [str(self.level)]
        return ":".join([self.name, *level, *(["parallel"] if self.parallel else [])])


@dataclass(frozen=True, slots=True)
class Nest(orders.Order):
    """The terms in the order of loops, the outermost first.

    A loop with a register, each iteration of a parallel loop, and all of its iterations together
    are sums of their own, which begin with 0 and go to the loop around them. `inner` is the order
    of the innermost sums: that of the longest, of which shorter ones lack the end. Raises
    UsageError for loops that do not make a nest, and for an inner order that depends on products.
    """

    loops: tuple[Loop, ...]
    inner: orders.Order = field(default_factory=orders.Sequential)

    def __post_init__(self) -> None:
        names = [loop.name for loop in self.loops if loop.level.size is None]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UsageError(
                f"a nest with two loops {twice[0]} without a size",
                "One of them takes what others leave.",
            )
        if all(loop.name != "ic" for loop in self.loops):
            raise UsageError(
                "a nest without a loop over the input channels, ic", "It is as in nest(ky,kx,ic)."
            )
        if (
            isinstance(self.inner, Nest | orders.Channelwise | orders.Runtime)
            or self.inner.reorders
        ):
            raise UsageError(
                f"an order {self.inner} within loops",
                "It is another one, such as tree or tiles(2:16).",
            )
        self.stages(orders.Terms(1))

    @classmethod
    def read(cls, sizes: Sequence[str]) -> "Nest":
        """Returns the order of these loops, and of an inner order at their end.

        Loops over outputs are left out: they change no sum.
        """
        has_inner = bool(sizes) and sizes[-1].partition("(")[0].strip() in orders.order_readers()
        loops = map(Loop.read, sizes[:-1] if has_inner else sizes)
        summing = tuple(loop for loop in loops if loop.name in _AXES)
        return cls(summing, orders.named(sizes[-1]) if has_inner else orders.Sequential())

    def stages(self, terms: orders.Terms) -> tuple[orders.Stage, ...]:
        """Returns the stages of the innermost sums, then those of the loops around them.

        Raises UsageError if loops with sizes leave out some terms.
        """
        if not terms.count:
            return (orders.one_group(0),)
        digits = self._iterations(terms)
        places = np.lexsort(digits[::-1])
        digits = digits[:, places]
        begins = [0]  # loops whose sums begin with 0, but the first, which has the accumulator's
        for n, (outer, loop) in enumerate(pairwise(self.loops), 1):
            begins += [n] if outer.parallel or loop.parallel or loop.level.is_own else []
        order, stages = self.inner, list[orders.Stage]()
        for begin in reversed(begins):
            changes = (digits[:begin, 1:] != digits[:begin, :-1]).any(0)
            firsts = np.append(0, np.flatnonzero(changes) + 1)
            lengths = np.diff(firsts, append=digits.shape[1])
            for stage in order.stages(
                orders.Terms(int(lengths.max()))
            ):  # those of shorter sums lack ends
                has_number = (stage.groups >= 0) & (stage.groups < lengths[:, None, None])
                starts = (np.cumsum(lengths) - lengths)[:, None, None]
                is_group, groups = has_number.any(-1), stage.groups + starts
                stages.append(replace(stage, groups=np.where(has_number, groups, -1)[is_group]))
                lengths = is_group.sum(-1)
            own = self.loops[begin].level
            stages[-1] = replace(
                stages[-1],
                register=own.register, shift=own.shift, float_register=own.float_register,
            )  # fmt: skip
            digits, order = digits[:, firsts], orders.Sequential()
        first = stages[0]
        stages[0] = replace(first, groups=np.where(first.groups < 0, -1, places[first.groups]))
        stages += [orders.one_group(1)] if self.loops[0].level.is_own else []
        shifting = max((n for n, stage in enumerate(stages) if stage.shift), default=0)
        if any(not stage.register for stage in stages[:shifting]) or any(
            stage.spill for stage in stages[:-1]
        ):
            raise UsageError(
                f"{self} would add in the accumulator before a shift, or spill before its end",
                "Give sums within one that is shifted a width of their own, as in ic:64:20.",
            )
        return tuple(stages)

    def _iterations(self, terms: orders.Terms) -> Array:
        """Returns the iteration of each loop that adds each term: (loops, terms), intp."""
        places = np.indices(terms.shape, np.intp).reshape(len(_AXES), -1)
        found = np.empty((len(self.loops), terms.count), np.intp)
        sizes = [loop.level.size for loop in self.loops]
        for name, extent, place in zip(_AXES, terms.shape, places, strict=True):
            own = [n for n, loop in enumerate(self.loops) if loop.name == name]
            left = -(-extent // math.prod(sizes[n] or 1 for n in own))
            step = 1
            for n in reversed(own):
                size = sizes[n] or left
                found[n] = place // step % size
                step = min(step * size, extent)
            if step < extent:
                raise UsageError(
                    f"{self} runs over {step if own else 0} of {extent} {name}",
                    f"A loop {name} without a size takes all that are left.",
                )
        return found

    def __str__(self) -> str:
        """The spelling that `named` reads; `positionwise` where it is that."""
        size = self.loops[-1].level.size
        is_short = self == positionwise(self.inner, size or 0)
        words = [str(size)] * bool(size) if is_short else [*map(str, self.loops)]
        words += [] if self.inner == orders.Sequential() else [str(self.inner)]
        name = "positionwise" if is_short else "nest"
        return f"{name}({','.join(words)})" if words else name


def positionwise(inner: orders.Order, block: int = 0) -> Nest:
    """Returns kernel position by kernel position, the channels innermost, in an inner order.

    So do libraries and arrays that lay activations out with the channels last. `block` channels at
    a time go over the whole window; 0 takes all.
    """
    outer = ("ic", *_KERNEL) if block else _KERNEL
    return Nest((*map(Loop, outer), Loop("ic", orders.Level(block or None))), inner)


def read_positionwise(sizes: Sequence[str]) -> Nest:
    """Returns the order with a block of channels, an inner order, or both. Raises UsageError."""
    if sizes and sizes[0].isdecimal():
        return Nest.read(("ic", *_KERNEL, f"ic:{sizes[0]}", *sizes[1:]))
    return Nest.read((*_KERNEL, "ic", *sizes))
