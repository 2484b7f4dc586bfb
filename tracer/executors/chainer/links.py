"""Calls of links, also of those that define `__call__`, and the states that links keep."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import chainer


class LinkCalls(chainer.LinkHook):  # type: ignore[misc]
    """A hook on every call of a link of `model`.

    Chainer calls hooks in `Link.__call__`. A class that defines `__call__`, as code for Chainer
    before 5 does, hides that; while the hook is set, such classes of `model` call it themselves.
    """

    def __init__(self, model: chainer.Link) -> None:
        super().__init__()
        kinds = {type(link) for link in model.links()}
        self._kinds = [kind for kind in kinds if kind.__call__ is not chainer.Link.__call__]
        self._own: list[tuple[Any, Any]] = []

    def enter(self, link: chainer.Link) -> None:
        """Is called before a link."""
        raise NotImplementedError

    def leave(self) -> None:
        """Is called after a link."""
        raise NotImplementedError

    def forward_preprocess(self, args: Any) -> None:
        """Is called by Chainer before a link."""
        self.enter(args.link)

    def forward_postprocess(self, args: Any) -> None:
        """Is called by Chainer after a link."""
        self.leave()

    def added(self, link: chainer.Link | None) -> None:
        """Is called by Chainer as the hook is set."""
        self._own = [(kind, vars(kind).get("__call__")) for kind in self._kinds]
        hooked = [self._hooked(kind.__call__) for kind in self._kinds]
        for kind, call in zip(self._kinds, hooked, strict=True):
            kind.__call__ = call

    def deleted(self, link: chainer.Link | None) -> None:
        """Is called by Chainer as the hook is removed."""
        for kind, own in self._own:
            if own is None:
                del kind.__call__  # inherited
            else:
                kind.__call__ = own

    def _hooked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def hooked(link: chainer.Link, *args: Any, **kwargs: Any) -> Any:
            self.enter(link)
            outputs = call(link, *args, **kwargs)
            self.leave()
            return outputs

        return hooked


def state_restorer(model: chainer.Link, *, alone: bool = False) -> Callable[[], None]:
    """Returns a function that gives links the state they have now, as `h` and `c` of an LSTM.

    A state is an attribute that is None or a variable and no parameter; `alone`, variables come
    without the functions that computed them.
    """
    held = [
        (link, name, _copy(value) if alone else value)
        for link in model.links()
        for name, value in vars(link).items()
        if _may_be_state(value)
    ]

    def restore() -> None:
        for link, name, value in held:
            now = getattr(link, name)
            if now is not value and _may_be_state(now):
                setattr(link, name, value)

    return restore


def _may_be_state(value: Any) -> bool:
    variable = isinstance(value, chainer.Variable) and not isinstance(value, chainer.Parameter)
    return variable or value is None


def _copy(value: chainer.Variable | None) -> chainer.Variable | None:
    return None if value is None else chainer.Variable(value.array, requires_grad=False)
