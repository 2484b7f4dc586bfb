"""MACs and parameters of networks as their papers and torchvision publish them."""

import pytest

from tests.analyzers.cost import networks
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import shape_inference

PUBLISHED = {
    # MACs of convolutions, products and attention; parameters without running statistics
    "ResNet-18": (1_814_073_344, 11_689_512),
    "ResNet-34": (3_663_761_408, 21_797_672),
    "ResNet-50 v1.5": (4_089_184_256, 25_557_032),
    "ResNet-50 v1": (3_857_973_248, 25_557_032),
    "ResNet-101 v1.5": (7_801_405_440, 44_549_160),
    "MobileNetV2": (300_774_272, 3_504_872),
    "VGG-16": (15_470_264_320, 138_357_544),
    "AlexNet": (714_188_480, 61_100_840),
    "ViT-B/16": (17_563_828_224, 86_567_656),
}

BUILD = {
    "ResNet-18": lambda: networks.resnet((2, 2, 2, 2), bottleneck=False),
    "ResNet-34": lambda: networks.resnet((3, 4, 6, 3), bottleneck=False),
    "ResNet-50 v1.5": lambda: networks.resnet((3, 4, 6, 3), bottleneck=True),
    "ResNet-50 v1": lambda: networks.resnet((3, 4, 6, 3), bottleneck=True, stride_in_3x3=False),
    "ResNet-101 v1.5": lambda: networks.resnet((3, 4, 23, 3), bottleneck=True),
    "MobileNetV2": networks.mobilenet_v2,
    "VGG-16": networks.vgg16,
    "AlexNet": networks.alexnet,
    "ViT-B/16": networks.vit_b16,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_macs_and_parameters_are_the_published_ones(name):
    model = BUILD[name]().model()
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    assert counted.unknown == ()
    assert (counted.table["macs"].sum(), counted.parameters[0]) == PUBLISHED[name]
    assert counted.parameters[1] == 4 * PUBLISHED[name][1]


def test_layers_of_resnet_18():
    model = networks.resnet((2, 2, 2, 2), bottleneck=False).model()
    table = cost(TypedModel(model, shape_inference.infer(model, {}))).table
    convolutions = table[table.index.str.startswith("Conv_")]
    assert convolutions["macs"].sum() == 1_813_561_344
    assert convolutions["macs"].iloc[:2].to_list() == [118_013_952, 115_605_504]
