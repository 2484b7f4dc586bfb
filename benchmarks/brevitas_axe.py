"""Loss of LeNet in narrow accumulators: `tracer narrow` and Brevitas's AXE on the same data.

Both see the same samples of the training split of digits, and fit all five layers, so that no input
makes a sum overflow. Brevitas has GPTQ and GPFQ, and several widths of weights and activations to
choose from, with and without correction of biases. The settings with the least error of the outputs
on the training samples are kept. Scores are of the test split; the SQNR is that of each layer's
output within the network, after its ReLU, against the float network. The bits that any input needs
are computed here, from the integers of both networks.

Needs torch, and Brevitas in an environment of its own: `pip install brevitas==0.13.4`.
"""

import argparse
import importlib.util
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import numpy_helper

from models import families
from models.lenet.torch_net import LeNet
from tracer.api.narrow import narrow
from tracer.graph.loading import open_model
from tracer.inputs.datasets.opening import open_dataset

LAYERS = ("conv1", "conv2", "fc1", "fc2", "fc3")
_TENSORS = ("relu", "relu_1", "relu_2", "relu_3", "linear_2")
"""Outputs of the layers in the shipped models, after the ReLU of all but the last."""
_METHODS = "gptq", "gpfq"
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Samples:
    """Images [N, 3, 32, 32] and labels [N]."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted network: its score in %, the SQNR in dB and the bits for any input by layer."""

    score: float
    sqnr_db: tuple[float, ...]
    bits: tuple[int, ...]
    seconds: float
    settings: str


def samples(split: str, limit: int | None) -> Samples:
    """Returns the first samples of a split of digits, as LeNet reads them."""
    model = open_model(families.FOLDER / "lenet" / "lenet.onnx")
    batches = list(open_dataset("digits", model, limit=limit, split=split).batches(64))
    images = np.concatenate([next(iter(each.inputs.values())) for each in batches])
    labels = np.concatenate([each.labels for each in batches if each.labels is not None])
    return Samples(images, labels)


def sqnr_db(wanted: NDArray[Any], got: NDArray[Any]) -> float:
    """Returns 10 log10 of the power of `wanted` over that of the difference."""
    wanted, error = wanted.astype(np.float64), got.astype(np.float64) - wanted
    return float(10 * np.log10((wanted**2).sum() / max((error**2).sum(), 1e-300)))


def score(outputs: NDArray[Any], labels: NDArray[np.int64]) -> float:
    """Returns the top1 in %."""
    return float(100 * (outputs.argmax(1) == labels).mean())


def needed(weights: NDArray[Any], bias: NDArray[Any], low: int, high: int) -> int:
    """Returns the bits of two's complement for integers (M, K) and any inputs, in any order."""
    ends = np.stack([weights * low, weights * high])
    top = np.maximum(ends.max(0), 0).sum(1) + np.maximum(bias, 0)
    bottom = np.minimum(ends.min(0), 0).sum(1) + np.minimum(bias, 0)
    return max(int(top.max()).bit_length(), int(-bottom.min() - 1).bit_length()) + 1


def tensors(model: onnx.ModelProto, images: NDArray[np.float32]) -> Arrays:
    """Returns the outputs of the layers by name, after their ReLU."""
    made = {name for node in model.graph.node for name in node.output}
    last = next(n for n in (f"{_TENSORS[-1]}_QuantizeLinear_Input", _TENSORS[-1]) if n in made)
    names = [*_TENSORS[:-1], last]
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(shown.SerializeToString())
    outputs = session.run(names, {session.get_inputs()[0].name: images})
    hidden = {name: np.maximum(each, 0) for name, each in zip(LAYERS, outputs, strict=True)}
    return hidden | {LAYERS[-1]: outputs[-1]}


def report(
    test: Samples, wanted: Arrays, got: Arrays, bits: Sequence[int], seconds: float, settings: str
) -> Fitted:
    """Returns the figures of a network with these outputs of its layers."""
    return Fitted(
        score(got[LAYERS[-1]], test.labels),
        tuple(sqnr_db(wanted[name], got[name]) for name in LAYERS),
        tuple(bits),
        seconds,
        settings,
    )


def ours(bits: int, limit: int, test: Samples, wanted: Arrays) -> Fitted:
    """Fits the shipped 8-bit LeNet with `tracer narrow`."""
    source = families.FOLDER / "lenet" / "lenet.int8.onnx"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "narrow.onnx"
        start = time.perf_counter()
        result = narrow(source, str(bits), "digits", limit=limit, output=target, in_process=True)
        seconds = time.perf_counter() - start
        got = tensors(onnx.load(target), test.images)
    changed = ", ".join(
        f"{node.module} {node.activation_bits or 8}-bit inputs" for node in result.nodes
    )
    widths = [node.guaranteed for node in result.nodes]
    return report(test, wanted, got, widths, seconds, changed)


def saturated(bits: int, limit: int) -> float:
    """Returns the score of the shipped 8-bit LeNet in accumulators that saturate."""
    source = families.FOLDER / "lenet" / "lenet.int8.onnx"
    return narrow(source, str(bits), "digits", limit=limit, in_process=True).scores.saturated


def weights() -> Arrays:
    """Returns the weights of the shipped float LeNet, as torch names them."""
    model = onnx.load(families.FOLDER / "lenet" / "lenet.onnx")
    stored = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    return {name: array for name, array in stored.items() if name.split(".")[0] in LAYERS}


def quantized(weight_bits: int, activation_bits: int) -> Any:
    """Returns LeNet of Brevitas's layers, which quantise weights and what they read."""
    import brevitas.nn as qnn
    from brevitas.core.scaling.standalone import ParameterFromStatsFromParameterScaling
    from brevitas.quant import (
        Int8ActPerTensorFloat,
        Int8WeightPerChannelFloatMSE,
        Int32Bias,
        Uint8ActPerTensorFloat,
    )

    net = LeNet()
    fixed_scales = Int8WeightPerChannelFloatMSE.let(
        scaling_impl=ParameterFromStatsFromParameterScaling, narrow_range=False
    )  # otherwise the scales follow the weights as they are fitted, and the sums exceed the limit
    for name in LAYERS:
        layer = getattr(net, name)
        common = {
            "weight_quant": fixed_scales, "weight_bit_width": weight_bits,
            "input_quant": Int8ActPerTensorFloat if name == LAYERS[0] else Uint8ActPerTensorFloat,
            "input_bit_width": activation_bits, "bias": layer.bias is not None,
        }  # fmt: skip
        if layer.bias is not None:
            common["bias_quant"] = Int32Bias
        if isinstance(layer, torch.nn.Conv2d):
            size = layer.in_channels, layer.out_channels, layer.kernel_size
            setattr(net, name, qnn.QuantConv2d(*size, **common))
        else:
            setattr(net, name, qnn.QuantLinear(layer.in_features, layer.out_features, **common))
    state = {name: torch.tensor(array) for name, array in weights().items()}
    net.load_state_dict(state, strict=False)
    return net.eval()


def axe(net: Any, bits: int, method: str, images: Any) -> None:
    """Calibrates activations, then fits the weights to sums of `bits` bits."""
    from brevitas.graph.calibrate import calibration_mode
    from brevitas_examples.common.axe import a2gpfq_mode, a2gptq_mode

    net(images[:1])  # fixes the scales of the weights
    mode = a2gptq_mode if method == "gptq" else a2gpfq_mode
    with calibration_mode(net):
        _run(net, images)
    with mode(net, act_order=True, max_accumulator_bit_width=bits) as fitting:
        for _ in range(fitting.num_layers):
            _run(fitting.model, images)
            fitting.update()


def correct_biases(net: Any, images: Any) -> None:
    """Adds the mean of what is lost to the biases, which layers without one then have."""
    from brevitas.graph.calibrate import bias_correction_mode

    with bias_correction_mode(net):
        _run(net, images)


def _run(net: Any, images: Any) -> None:
    for start in range(0, len(images), 64):
        net(images[start : start + 64])


def layer_outputs(net: Any, images: NDArray[np.float32]) -> Arrays:
    """Returns the outputs of the layers by name, after their ReLU."""
    kept: dict[str, NDArray[Any]] = {}

    def keep(name: str) -> Any:
        def hook(layer: Any, inputs: Any, output: Any) -> None:
            value = output.value if hasattr(output, "value") else output
            kept[name] = value.detach().numpy().clip(None if name == LAYERS[-1] else 0)

        return hook

    hooks = [getattr(net, name).register_forward_hook(keep(name)) for name in LAYERS]
    net(torch.tensor(images))
    for each in hooks:
        each.remove()
    return kept


def widths(net: Any, with_bias: bool) -> Iterator[int]:
    """Yields the bits that any input of each layer needs, from its integers."""
    for name in LAYERS:
        layer = getattr(net, name)
        integers = layer.quant_weight().int().numpy().astype(np.int64)
        quant = layer.input_quant
        levels = 1 << int(quant.bit_width())
        low, high = (-levels // 2, levels // 2 - 1) if quant.is_signed else (0, levels - 1)
        bias = np.zeros(len(integers), np.int64)
        if layer.bias is not None and with_bias:
            unit = float(quant.scale()) * layer.quant_weight().scale.detach().numpy().reshape(-1)
            bias = np.rint(layer.bias.detach().numpy() / unit).astype(np.int64)
        yield needed(integers.reshape(len(integers), -1), bias, low, high)


def theirs(
    bits: int, operands: tuple[list[int], list[int]], data: tuple[Samples, Samples], wanted: Arrays
) -> tuple[Fitted, float]:
    """Returns the best of Brevitas's settings, and the seconds of all of them.

    `operands` are the bits of weights and of activations to try, `data` the training and the test
    samples.
    """
    train, test = data
    images, last = torch.tensor(train.images), LAYERS[-1]
    aim = tensors(onnx.load(families.FOLDER / "lenet" / "lenet.onnx"), train.images)[last]
    best, fitted, total = -np.inf, None, 0.0
    for setting in itertools.product(_METHODS, *operands):
        for net, seconds, name in _fits(bits, setting, images):
            total += seconds
            error = sqnr_db(aim, layer_outputs(net, train.images)[last])
            if error > best:
                best, got = error, layer_outputs(net, test.images)
                held = f"weights alone {list(widths(net, False))}"
                fitted = report(
                    test, wanted, got, list(widths(net, True)), seconds, f"{name}, {held}"
                )
    assert fitted is not None
    return fitted, total


def _fits(bits: int, setting: Any, images: Any) -> Iterator[tuple[Any, float, str]]:
    """Yields the network, the seconds and the settings: before and after the biases' correction."""
    method, weight_bits, activation_bits = setting
    name = f"{method}, {weight_bits}-bit weights, {activation_bits}-bit inputs"
    start = time.perf_counter()
    net = quantized(weight_bits, activation_bits)
    axe(net, bits, method, images)
    yield net, time.perf_counter() - start, name
    start = time.perf_counter()
    correct_biases(net, images)
    yield net, time.perf_counter() - start, f"{name}, biases corrected"


def main() -> int:
    """Prints a row for each width and tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, nargs="+", default=[16, 14, 12])
    parser.add_argument("--limit", type=int, default=512, help="training samples")
    parser.add_argument("--weights", type=int, nargs="+", default=[3, 4, 5], help="bits to try")
    parser.add_argument("--activations", type=int, nargs="+", default=[4, 5, 6], help="bits to try")
    options = parser.parse_args()
    if importlib.util.find_spec("brevitas") is None:
        print("skipped: Brevitas is not installed: pip install brevitas==0.13.4")
        return 0
    train, test = samples("train", options.limit), samples("test", None)
    wanted = tensors(onnx.load(families.FOLDER / "lenet" / "lenet.onnx"), test.images)
    print(f"float: {score(wanted[LAYERS[-1]], test.labels):.2f} %", flush=True)
    for bits in options.bits:
        print(f"{bits} bits: saturated {saturated(bits, options.limit):.2f} %")
        _show("tracer", ours(bits, options.limit, test, wanted))
        with torch.no_grad():
            operands = options.weights, options.activations
            best, total = theirs(bits, operands, (train, test), wanted)
        _show("Brevitas", best)
        print(f"  {total:.0f} s for all settings of Brevitas", flush=True)
    return 0


def _show(name: str, fitted: Fitted) -> None:
    layers = " ".join(f"{each:.1f}" for each in fitted.sqnr_db)
    print(
        f"  {name}: {fitted.score:.2f} %, SQNR dB {layers}, any input {fitted.bits}, "
        f"{fitted.seconds:.1f} s, {fitted.settings}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
