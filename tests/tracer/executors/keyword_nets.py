"""A network of torch and one of Chainer whose inputs have keywords; they tell what they receive."""

from typing import Any


def made(framework: str) -> tuple[Any, list[Any]]:
    """Returns a model, and a list that has the sums of its inputs after each run."""
    received: list[Any] = []

    def forward(self, x, a=None, *, b, scale):
        received.append(tuple(None if v is None else float(v.sum()) for v in (x, a, b, scale)))
        return self.layer(x + b) * scale

    if framework == "torch":
        import torch

        class Keywords(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 2)

        kind: Any = Keywords
    else:
        from tracer.exporters.chainer.compat import chainer_ready

        chainer_ready()
        import chainer

        class Chain(chainer.Chain):
            def __init__(self):
                super().__init__()
                with self.init_scope():
                    self.layer = chainer.links.Linear(3, 2)

        kind = Chain
    kind.forward = forward
    return kind(), received
