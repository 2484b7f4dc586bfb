from __future__ import annotations

import sys

import numpy as np
import pytest

from tracer.errors import UsageError
from tracer.inputs.datasets import images


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("PIL", lambda tmp_path: images.read(tmp_path / "a.png")),
        ("PIL", lambda tmp_path: images.fit(np.zeros((1, 1, 2, 2), np.uint8), (1, 4, 4))),
    ],
)
def test_a_package_that_is_missing_is_told_with_its_extra(package, use, tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"needs '{package}'.*'tracer-onnx\[train\]'"):
        use(tmp_path)
