"""Networks in half precision on a device, layer by layer against `tc:h100`.

Each product of a network, with the inputs that it had on the device, is computed once more by
`tracer.interpret`. What follows the sum is done in the ways that a library may: a bias is added
before the sum is rounded (`after`), to the rounded sum (`twice`), or is where the sum starts.
"""

import base64
import hashlib
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from models.lenet.torch_net import LeNet
from models.mnist.torch_net import MnistNet
from models.transformer.torch_net import PatchTransformer
from tests.card import parts
from tests.card.products import encoded, failure, values
from tests.card.rules import PRESET, Rule, rounded, same
from tests.card.torch_products import TYPES, draw, words
from tracer.accumulators.hardware.matrix_cores import NVIDIA

SECONDS: float = 40
KEPT = 6000
"""Numbers of a tensor that is kept as it is; of others there is a SHA-256."""
LENET = Path("models/lenet/lenet.onnx")
_SEED = 11


def networks():
    """Returns networks and the shapes of their inputs."""
    perceptron = nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    return {
        "perceptron": (perceptron, (4, 256)),
        "lenet": (LeNet(), (1, 3, 32, 32)),
        "mnist": (MnistNet(), (1, 1, 28, 28)),
        "transformer": (PatchTransformer(layers=1), (1, 3, 32, 32)),
    }


def measure(seconds):
    """Returns the layers of each network, with the share of results that have equal bits."""
    end, device = time.monotonic() + seconds, parts.device()
    found, layers = {"preset": PRESET, "networks": {}}, []
    for form in ("fp16", "bf16"):
        for name, (network, shape) in networks().items():
            if form == "bf16" and name not in ("perceptron", "lenet"):
                continue
            try:
                measured = run(network, shape, form, device)
            except Exception as error:
                found["networks"][f"{name} {form}"] = failure(error)
                continue
            found["networks"][f"{name} {form}"] = [layer for layer, _ in measured]
            layers += measured
    parts.keep(found)
    for layer, tensors in layers:
        if time.monotonic() > end - 5:
            layer["equal"] = "no time was left"
            continue
        try:
            layer["equal"] = shares(layer, *tensors)
        except Exception as error:
            layer["equal"] = failure(error)
    parts.keep(found)
    for name, part in (("whole", whole), ("revealed", revealed)):
        try:
            found[name] = part(device)
        except Exception as error:
            found[name] = failure(error)
        parts.keep(found)
    return found


def revealed(device):
    """Returns what `tracer reveal` says of a function that computes on the card."""
    if device != "cuda":
        return None
    import tracer

    result = tracer.reveal("tests/card/tile.py:product", 64)
    return {
        "rule": result.rule, "spec": result.spec, "reason": result.reason,
        "operands": result.operands, "preset": result.facts.get("preset"),
    }  # fmt: skip


def initialised(network, form):
    """Sets weights and biases that are known by their names' order, in a format."""
    with torch.no_grad():
        for seed, module in enumerate(network.modules()):
            if not isinstance(module, (nn.Linear, nn.Conv2d)):
                continue
            shape = tuple(module.weight.shape)
            scale = 2.0 ** -round(np.log2(np.prod(shape[1:])) / 2)
            weights = draw(_SEED + 2 * seed, shape, form) * np.float32(scale)
            module.weight.copy_(torch.from_numpy(weights))
            if module.bias is not None:
                module.bias.copy_(torch.from_numpy(draw(_SEED + 2 * seed + 1, shape[:1], form)))
        for name, parameter in network.named_parameters():
            if name == "positions":
                parameter.copy_(torch.from_numpy(draw(_SEED, tuple(parameter.shape), form)))
    return network.eval()


def run(network, shape, form, device):
    """Returns the linear layers and convolutions of a network, each with its tensors."""
    network = initialised(network, form).to(device, TYPES[form])
    layers, hooks = [], []

    def hook(name):
        def keep(module, inputs, output):
            given = inputs[0].detach()
            layers.append((name, module, given.clone(), output.detach().clone()))

        return keep

    for name, module in network.named_modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            hooks.append(module.register_forward_hook(hook(name)))
    with torch.no_grad():
        images = torch.from_numpy(draw(_SEED - 1, shape, form)).to(device, TYPES[form])
        network(images)
    for each in hooks:
        each.remove()
    return [record(*layer, form) for layer in layers]


def record(name, module, given, output, form):
    """Returns a layer as it is kept, and its tensors: given, weights, bias and output."""
    bias = module.bias
    tensors = [given, module.weight.detach(), None if bias is None else bias.detach(), output]
    kept = {
        "name": name, "kind": type(module).__name__, "format": form,
        "shapes": [list(each.shape) for each in (given, module.weight, output)],
        "stride": list(getattr(module, "stride", ())),
    }  # fmt: skip
    for key, tensor in (("given", given), ("output", output)):
        bits = words(tensor)
        kept[f"{key}_sha256"] = hashlib.sha256(np.ascontiguousarray(bits).tobytes()).hexdigest()
        if tensor.numel() <= KEPT:
            kept[key] = encoded(bits)
    return kept, [None if each is None else each.float().cpu().numpy() for each in tensors]


def kept(layer, key):
    """Returns a tensor of a layer that was kept, float32."""
    shape = layer["shapes"][0 if key == "given" else 2]
    bits = np.frombuffer(base64.b64decode(layer[key]), "<u2").reshape(shape)
    return values(bits, layer["format"])


def shares(layer, given, weights, bias, output):
    """Returns the share of results with equal bits, by what follows the sum and by the order."""
    sums = {"interpret": interpreted(layer, given, weights)}
    if layer["kind"] == "Conv2d":
        sums |= {
            f"channels last, {pad}": conv_sums(layer, given, weights, pad) for pad in (1, 8, 16)
        }
    shape = (-1, *[1] * (output.ndim - 2)) if layer["kind"] == "Conv2d" else (-1,)
    found = {}
    for name, each in sums.items():
        for way, result in ways(each, bias, shape, layer["format"]).items():
            found[f"{name} {way}".strip()] = float(same(result, output).mean())
    if bias is not None:
        result = rounded(interpreted(layer, given, weights, bias), layer["format"])
        found["interpret start"] = float(same(result, output).mean())
    return found


def ways(sums, bias, shape, form):
    """Returns results by how a bias is added to sums."""
    if bias is None:
        return {"": rounded(sums, form)}
    bias = bias.reshape(shape)
    return {
        "after": rounded(sums + bias, form),
        "twice": rounded(rounded(sums, form) + bias, form),
    }


def interpreted(layer, given, weights, bias=None):
    """Returns the sums of a layer by `tracer.interpret`, float32; a bias is where they start."""
    import tracer

    with tempfile.TemporaryDirectory() as folder:
        model, feeds = Path(folder, "layer.onnx"), Path(folder, "feeds.npz")
        flat = given if layer["kind"] == "Conv2d" else given.reshape(-1, given.shape[-1])
        onnx.save(_model(layer, flat, weights, bias), model)
        np.savez(feeds, x=flat)
        results = []
        tracer.interpret(
            model, inputs=feeds, accumulator=PRESET, operands=layer["format"], in_process=True,
            receive=lambda _, outputs: results.append(outputs[0]),
        )  # fmt: skip
    return np.concatenate(results).reshape(layer["shapes"][2])


def _model(layer, given, weights, bias):
    """Returns the model of one layer, float32."""
    inputs = ["x", "w", *["b"] * (bias is not None)]
    if layer["kind"] == "Conv2d":
        node = helper.make_node("Conv", inputs, ["y"], "layer", strides=layer["stride"])
    else:
        node = helper.make_node("Gemm", inputs, ["y"], "layer", transB=1)
    constants = [numpy_helper.from_array(weights, "w")]
    constants += [] if bias is None else [numpy_helper.from_array(bias, "b")]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", given.shape), ("y", None))
    )
    graph = helper.make_graph([node], "layer", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def conv_sums(layer, given, weights, pad):
    """Returns the sums of a convolution with the channels last, padded to a multiple of `pad`."""
    count, channels, *kernel = weights.shape
    stride = layer["stride"]
    windows = np.lib.stride_tricks.sliding_window_view(given, kernel, (2, 3))
    windows = windows[:, :, :: stride[0], :: stride[1]]  # (N, C, H, W, R, S)
    missing = -channels % pad
    rows = np.pad(windows.transpose(0, 2, 3, 4, 5, 1), [(0, 0)] * 5 + [(0, missing)])
    columns = np.pad(weights.transpose(0, 2, 3, 1), [(0, 0)] * 3 + [(0, missing)])
    rows = rows.reshape(-1, np.prod(kernel) * (channels + missing))
    columns = columns.reshape(count, -1)
    block = NVIDIA[PRESET][layer["format"]]
    order = ["chain", None, [[0, rows.shape[1], 1, block.length]]]
    found = Rule(order, str(block)).of(rows.astype(np.float32), columns, "fp32")
    shape = layer["shapes"][2]
    return found.reshape(shape[0], *shape[2:], count).transpose(0, 3, 1, 2)


def whole(device):
    """Returns LeNet with its trained weights: outputs of the device, and of `tracer.interpret`."""
    import tracer

    arrays = {
        each.name: torch.from_numpy(numpy_helper.to_array(each).copy())
        for each in onnx.load(LENET).graph.initializer
    }
    network = LeNet()
    network.load_state_dict({name: arrays[name] for name in network.state_dict()})
    images = draw(_SEED, (16, 3, 32, 32), "fp16")
    network = network.eval().to(device, torch.float16)
    with torch.no_grad():
        output = network(torch.from_numpy(images).to(device, torch.float16))
    found = {"kept": encoded(words(output)), "shape": list(output.shape)}
    want = output.float().cpu().numpy()
    return found | whole_shares(want, images, tracer)


def whole_shares(want, images, tracer):
    """Returns how many outputs of LeNet have the bits of the device, and how many classes."""
    with tempfile.TemporaryDirectory() as folder:
        feeds, results = Path(folder, "feeds.npz"), []
        np.savez(feeds, x=images)
        tracer.interpret(
            LENET, inputs=feeds, accumulator=PRESET, operands="fp16", in_process=True,
            receive=lambda _, outputs: results.append(outputs[0]),
        )  # fmt: skip
    got = rounded(np.concatenate(results), "fp16")
    ulps = np.spacing(np.maximum(np.abs(want), 2.0**-14).astype(np.float16)).astype(np.float32)
    return {
        "equal": float(same(got, want).mean()),
        "classes": float((got.argmax(-1) == want.argmax(-1)).mean()),
        "largest_ulp": float((np.abs(got - want) / ulps).max()),
    }
