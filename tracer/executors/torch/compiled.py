"""torch.compile's form of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

EXECUTOR = "torch-compile"


def compiled(model: torch.nn.Module) -> Callable[..., Any]:
    """`model` compiled for the shapes of its first run, whose generated kernels are recorded.

    It is compiled when it is first run, which raises whatever the compiler does.
    """
    torch._dynamo.reset()  # what an earlier batch compiled would be made dynamic
    options: dict[str, Any] = {"cpp.enable_kernel_profile": True}
    found: Callable[..., Any] = torch.compile(model, dynamic=False, options=options)
    return found
