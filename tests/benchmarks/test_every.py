"""Every benchmark runs and prints its lines, at the smallest size that its options allow."""

import re
import runpy
import sys

import pytest

from benchmarks.__main__ import names

pytestmark = pytest.mark.nightly

SMALLEST = {
    "accumulators": "--threads 1 --runs 1",
    "brevitas_axe": "--bits 16 --limit 64 --weights 4 --activations 6",
    "comparing": "--comparisons 0 --slowdowns 1 --layers 1 --alike 1",
    "containment": "--help",  # starts a dozen processes
    "counting": "--nodes 8 --many 9 --repeats 1",
    "float_accumulators": "--threads 1 --batch 1 --runs 1",
    "interpreter": "resnet20 --runs 1 --no-reference",
    "networks": "--networks transformer --batch 1 --rounds 1",
    "parsing": "--runs 3 --repeats 1",
    "profiling": "--runs 10 --repeats 1",
    "report": "--nodes 40 --repeats 1 --runs 2",
    "scaling": "--images 0 --resnet 32 --grown 0 --rounds 1",
    "simulated_cluster": "--evaluations 1e6 --workers 1,10 --shards 4",
    "startup": "--repeats 1",
    "streaming": "--few 20 --many 200 --sources npz",
    "truth": "--networks MLP --trials 1 --seconds 0.01 --replay 1 --threads 1",
    "tuning": "--networks lenet --space memory_pattern --sessions 2",
    "weights": "count --layers 1 --size 64",
    "whatif": "--images 10 --grown 0 --accumulator 18 --rounds 1",
}
PRINTS = {
    "accumulators": r"192x576x128, 1 thread\(s\)\n  values, 18 bits.* \d+\.\d\d ",
    "brevitas_axe": r"skipped: Brevitas is not installed|16 bits: saturated \d+\.\d\d %\n"
    r"  tracer: .* any input \(16, .*\n  Brevitas: .*-bit inputs",
    "comparing": r"an operator of the chain takes .*\n.* slower: different in [01] of 1.*\n"
    r"modules of the same model: \d of \d+ different.*\nconv1 .* slower: named in [01] of 1",
    "containment": r"--turns TURNS",
    "counting": r"tracer count of 8 nodes: \d+\.\d\d s.*\n÷ check.*\na chain of 9: \d+\.\d\d s",
    "float_accumulators": r"batch 1, 1 thread\(s\).*\n  integers, 18 bits .* 1\.0\n"
    r"  fp16 .* \d+\.\d  <= 8\n(.*\n)*ResNet-20, batch 1, 1 thread.*\n  integers, 18 bits .* 1\.0\n"
    r"  fp16, float32 .* \d+\.\d  <= 8\n",
    "interpreter": r"network .*\nresnet20 +64 +\d+\.\d\d",
    "networks": r"network .*\ntransformer +values +16 +\d+\.\d\d",
    "parsing": r"events, \d+ bytes each\nevents per second: [\d,]+ .*\njson.loads takes",
    "profiling": r"recorded 10 of 10 runs\n(.*\n){2}whole command ÷ plain .*\npeak memory",
    "report": r"scripts and styles: \d+ kB.*\n.*\nResNet-20 +\d+\.\d\d +\d+\.\d\d +[\d,]+.*\n"
    r"40 nodes +\d",
    "scaling": r"ResNet-20, 14:24, 32 images, 2 workers .*\n  1 worker ÷ 2 workers: \d+\.\d\d "
    r".*\n  1 worker ÷ one process: \d+\.\d\d ",
    "simulated_cluster": r"shard, s  workers .*\n +4 +1 +9\d\.\d%.*\n +4 +10 +\d",
    "streaming": r"source .*\nnpz +\d+ +\d+ +\d\.\d\d ",
    "startup": r"tracer --help: \d\.\d{3} s .*\n÷ a bare interpreter",
    "truth": r"network .*\nMLP +1 ",
    "tuning": r"network .*combinations.*\nlenet +1 +\d+\.\d +\d+\.\d +\d\.\d+  \w+.*; exhaustive",
    "weights": r"0.00 GB of weights .*\ncount +\d+\.\d\d +\d+\.\d\d +\d",
    "whatif": r"wide, all overflows +\d+\.\d\d s\n18 bits .* % .* s\nsum .*\nspeed-up.*\n"
    r"(.* evaluations .* onnxruntime .*\n){2}",
}


@pytest.mark.parametrize("name", names())
def test_a_benchmark_prints_its_lines(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, *SMALLEST[name].split()])
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        monkeypatch.setenv(variable, "1")  # benchmarks set and unset them: restored afterwards
    try:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    except SystemExit as ended:
        assert not ended.code
    assert re.search(PRINTS[name], capsys.readouterr().out)
