"""Rows by module and by line of the shipped ResNet-20, against what the frameworks say."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import tracer
from models import families
from tests.examples import at_night
from tracer.analyzers.grouping import grouped

ROOT = "(root)"
DEPTHS = (1, 2, 3, None)


@pytest.fixture(scope="module")
def counted():
    def of(framework):
        return tracer.count(families.shipped("resnet_cifar", framework)).nodes

    return of


def cut(path, depth):
    return ".".join(path.split(".")[:depth]) if path else ROOT


def torch_work():
    """MACs of every convolution and linear layer by its path; paths of all that is called."""
    import torch

    net = families.build("resnet_cifar", "torch", {}).eval()
    paths = {module: path for path, module in net.named_modules()}
    macs, called = {}, set()

    def hook(layer, inputs, output):
        if not isinstance(layer, torch.nn.Sequential):
            called.add(paths[layer])
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
            macs[paths[layer]] = output[0].numel() * layer.weight[0].numel()

    with torch.no_grad(), torch.nn.modules.module.register_module_forward_hook(hook):
        net(torch.zeros(1, 3, 32, 32))
    return macs, called


def chainer_work():
    """The same of the Chainer twin."""
    from tracer.exporters.chainer.compat import chainer_ready

    chainer_ready()
    import chainer

    net = families.build("resnet_cifar", "chainer", {})
    paths = {id(link): path.strip("/").replace("/", ".") for path, link in net.namedlinks()}
    macs, called = {}, set()

    class Hook(chainer.LinkHook):
        def forward_postprocess(self, args):
            layer = args.link
            if not isinstance(layer, chainer.ChainList):
                called.add(paths[id(layer)])
            if isinstance(layer, chainer.links.Convolution2D | chainer.links.Linear):
                macs[paths[id(layer)]] = args.out.array[0].size * layer.W.array[0].size

    with chainer.using_config("train", False), chainer.no_backprop_mode(), Hook():
        net(np.zeros((1, 3, 32, 32), np.float32))
    return macs, called


WORK = {"torch": torch_work, "chainer": chainer_work}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("framework", families.FRAMEWORKS)
def test_modules_of_every_depth_do_the_work_that_hooks_in_the_framework_see(framework, counted):
    macs, called = WORK[framework]()
    for depth in DEPTHS:
        rows = grouped(counted(framework), "module", depth=depth).set_index("module")
        assert set(rows.index) == {cut(path, depth) for path in called}
        wanted = Counter()
        for path, count in macs.items():
            wanted[cut(path, depth)] += count
        assert {m: n for m, n in rows["macs"].items() if n} == wanted


@pytest.mark.parametrize("framework", families.FRAMEWORKS)
def test_a_line_does_the_work_of_the_layers_that_its_text_calls(framework, counted):
    macs, _ = WORK[framework]()
    rows = grouped(counted(framework), "source").set_index("source")
    assert rows["macs"].sum() == sum(macs.values())
    for source, row in rows.iterrows():
        file, _, line = source.rpartition(":")
        text = (families.FOLDER.parent / file).read_text("utf-8").splitlines()[int(line) - 1]
        called = set(re.findall(r"self\.(\w+)\(", text))
        inside = [count for path, count in macs.items() if path.rpartition(".")[2] in called]
        assert row["macs"] == sum(inside), (source, text)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("depth", at_night(DEPTHS, but=[1, None]))
def test_a_fused_run_has_the_same_modules_and_the_whole_time(depth, counted):
    trace = tracer.profile(families.shipped("resnet_cifar", "torch"), runs=2, warmup=1, threads=1)
    rows = grouped(trace.nodes, "module", depth=depth).set_index("module")
    expected = grouped(counted("torch"), "module", depth=depth).set_index("module")
    ours = rows.drop(index="(runtime)", errors="ignore")
    assert list(ours.index) == list(expected.index)
    assert ours["macs"].tolist() == expected["macs"].tolist()
    assert rows["time_us"].sum() == pytest.approx(trace.nodes["time_us"].sum())
    assert rows.loc["conv", "also_holds"] == f"bn; {ROOT}"
    assert rows.loc["bn", "timed_in"] == "conv"
    texts = rows["also_holds"].dropna().index.str.startswith("stage")
    assert texts.any() == (depth not in (1, 2))
