"""Test cases for each function that onnx_chainer claims to convert, or that is added to these.

An expression is model code: `F` are Chainer's functions, `np` is NumPy, `model` is the chain and
`l` its child, built by the last column; inputs are bound by name. An input is `name=shape` of
float32, or `name=shape:type`; the default is `x=2,5`.
"""

from typing import NamedTuple


class Case(NamedTuple):
    """One use of `function`; `link` is the expression of a child link `l`, '' for none."""

    function: str
    expression: str
    inputs: str = "x=2,5"
    link: str = ""


UNREACHABLE = {
    # converters that no exported model uses, with the reason
    "BatchNormalization": "normalizes by the batch's own statistics, and the node would hold those "
    "of one input: refused",
    "MaxPooling2D": "Chainer 7.8.1 has MaxPoolingND for every number of dimensions",
    "RsqrtGPU": "a function of the GPU; on a CPU `F.rsqrt` is Sqrt and Div",
    "Selu": "`F.selu` is ELU and MulConstant",
    "Shape": "no function of Chainer 7.8.1 has this name",
}

# fmt: off
CASES = tuple(
    Case(*row)
    for row in (
        # activation
        ("ClippedReLU", "F.clipped_relu(x, z=0.5)"), ("ELU", "F.elu(x, alpha=0.7)"),
        ("ELU", "F.selu(x)"), ("HardSigmoid", "F.hard_sigmoid(x)"),
        ("LeakyReLU", "F.leaky_relu(x, slope=0.1)"), ("LogSoftmax", "F.log_softmax(x)"),
        ("LogSoftmax", "F.log_softmax(x, axis=1)", "x=2,3,4"),
        ("PReLUFunction", "l(x)", "x=2,3", "L.PReLU((3,))"),
        ("PReLUFunction", "l(x)", "x=2,3,4,4", "L.PReLU((3,))"),
        ("ReLU", "F.relu(x)"), ("Sigmoid", "F.sigmoid(x)"), ("Softmax", "F.softmax(x)"),
        ("Softmax", "F.softmax(x, axis=1)", "x=2,3,4"),
        ("Softplus", "F.softplus(x)"), ("Softplus", "F.softplus(x, beta=2.0)"),
        ("Tanh", "F.tanh(x)"),
        # array
        ("Cast", "F.cast(x, 'float64')"),
        ("Concat", "F.concat([x, y], axis=1)", "x=2,3 y=2,4"),
        ("Copy", "F.copy(x, -1)"),
        ("Depth2Space", "F.depth2space(x, 2)", "x=2,8,3,3"),
        ("Dstack", "F.dstack([x, y])", "x=2,3,4 y=2,3,1"),
        ("ExpandDims", "F.expand_dims(x, -1)"),
        ("GetItem", "x[:, 1]", "x=2,3,4"),
        ("GetItem", "x[:, 1:3, ::-1]", "x=2,3,4"),
        ("GetItem", "x[..., None, -1]", "x=2,3,4"),
        ("GetItem", "x[:, [0, 2]]", "x=2,3,4"),
        ("GetItem", "x[[0, 1], [2, 0]]", "x=2,3,4"),
        ("Hstack", "F.hstack([x, y])", "x=2,3 y=2,4"),
        ("Moveaxis", "F.moveaxis(x, 0, 2)", "x=2,3,4"),
        ("Pad", "F.pad(x, ((0, 0), (1, 2)), 'constant')"),
        ("Pad", "F.pad(x, 1, 'constant', constant_values=2)"), ("Pad", "F.pad(x, 1, 'reflect')"),
        ("Permutate", "F.permutate(x, np.array([2, 0, 1], 'i'))", "x=3,4"),
        ("Permutate", "F.permutate(x, np.array([2, 0, 1], 'i'), inv=True)", "x=3,4"),
        ("Repeat", "F.repeat(x, 2, axis=1)", "x=2,3"),
        ("Repeat", "F.repeat(x, 3)", "x=2,3"),
        ("Reshape", "F.reshape(x, (2, -1))", "x=2,3,4"),
        ("ResizeImages", "F.resize_images(x, (7, 9))", "x=2,3,4,5"),
        ("ResizeImages", "F.resize_images(x, (8, 10), align_corners=False)", "x=2,3,4,5"),
        ("ResizeImages", "F.resize_images(x, (8, 10), mode='nearest')", "x=2,3,4,5"),
        ("Rollaxis", "F.rollaxis(x, 2)", "x=2,3,4"),
        ("SelectItem", "F.select_item(x, t)", "x=4,3 t=4:int32"),
        ("Separate", "F.separate(x, axis=1)", "x=2,3,4"),
        ("Space2Depth", "F.space2depth(x, 2)", "x=2,3,4,4"),
        ("SplitAxis", "F.split_axis(x, 2, axis=1)", "x=2,6"),
        ("SplitAxis", "F.split_axis(x, [1, 3], axis=1)", "x=2,6"),
        ("Squeeze", "F.squeeze(x, axis=1)", "x=2,1,4"),
        ("Squeeze", "F.squeeze(x)", "x=2,1,4"),
        ("Stack", "F.stack([x, y], axis=1)", "x=2,3 y=2,3"),
        ("Swapaxes", "F.swapaxes(x, 0, 2)", "x=2,3,4"),
        ("Tile", "F.tile(x, (2, 3))", "x=2,3"),
        ("Transpose", "F.transpose(x)", "x=2,3,4"),
        ("Transpose", "F.transpose(x, (0, 2, 1))", "x=2,3,4"),
        ("TransposeSequence", "F.transpose_sequence([x, y])", "x=3,4 y=3,4"),
        ("TransposeSequence", "F.transpose_sequence([x, y])", "x=3,4 y=1,4"),
        ("Vstack", "F.vstack([x, y])", "x=2,3 y=4,3"),
        ("Where", "F.where(c, x, y)", "c=2,3:bool x=2,3 y=2,3"),
        # connection
        ("Convolution2DFunction", "l(x)", "x=2,3,8,8", "L.Convolution2D(3, 4, 3, pad=1)"),
        ("Convolution2DFunction", "l(x)", "x=2,4,8,8",
         "L.Convolution2D(4, 4, 3, stride=2, dilate=2, groups=2, nobias=True)"),
        ("ConvolutionND", "l(x)", "x=2,3,9", "L.Convolution1D(3, 4, 3, stride=2, pad=1)"),
        ("ConvolutionND", "l(x)", "x=2,3,4,4,4", "L.Convolution3D(3, 4, 3)"),
        ("ConvolutionND", "l(x)", "x=2,3,9", "L.ConvolutionND(1, 3, 4, 3, dilate=2)"),
        ("Deconvolution2DFunction", "l(x)", "x=2,3,4,4", "L.Deconvolution2D(3, 4, 3, stride=2)"),
        ("Deconvolution2DFunction", "l(x)", "x=2,3,4,4", "L.Deconvolution2D(3, 4, 3, pad=1)"),
        ("DeconvolutionND", "l(x)", "x=2,3,5", "L.Deconvolution1D(3, 4, 3, stride=2)"),
        ("DeconvolutionND", "l(x)", "x=2,3,3,3,3", "L.Deconvolution3D(3, 4, 3, pad=1)"),
        ("DeconvolutionND", "l(x)", "x=2,3,5", "L.DeconvolutionND(1, 3, 4, 3, dilate=2)"),
        ("EmbedIDFunction", "l(t)", "t=2,4:int32", "L.EmbedID(5, 3)"),
        ("LinearFunction", "l(x)", "x=2,5", "L.Linear(5, 3)"),
        ("LinearFunction", "l(x)", "x=2,5", "L.Linear(5, 3, nobias=True)"),
        ("LinearFunction", "l(x, n_batch_axes=2)", "x=2,4,5", "L.Linear(5, 3)"),
        # loss
        ("SoftmaxCrossEntropy", "F.softmax_cross_entropy(x, t)", "x=4,3 t=4:int32"),
        # math
        ("Absolute", "abs(x)"),
        ("Add", "x + y", "x=2,5 y=2,5"),
        ("AddConstant", "x + 2"), ("Arccos", "F.arccos(F.tanh(x))"),
        ("Arcsin", "F.arcsin(F.tanh(x))"), ("Arctan", "F.arctan(x)"),
        ("ArgMax", "F.argmax(x, axis=1)"), ("ArgMax", "F.argmax(x)"),
        ("ArgMin", "F.argmin(x, axis=1)"), ("BroadcastTo", "F.broadcast_to(x, (4, 2, 5))"),
        ("Clip", "F.clip(x, -0.5, 0.5)"), ("Cos", "F.cos(x)"), ("Cosh", "F.cosh(x)"),
        ("Div", "x / y", "x=2,5 y=2,5"),
        ("DivFromConstant", "2 / x"), ("Exp", "F.exp(x)"), ("Identity", "F.identity(x)"),
        ("LinearInterpolate", "F.linear_interpolate(p, x, y)", "p=2,5 x=2,5 y=2,5"),
        ("Log", "F.log(abs(x))"), ("LogSumExp", "F.logsumexp(x, axis=1)"),
        ("LogSumExp", "F.logsumexp(x)"),
        ("MatMul", "F.matmul(x, y)", "x=2,3 y=3,4"),
        ("MatMul", "F.matmul(x, y, transb=True)", "x=2,3,4 y=2,5,4"),
        ("Max", "F.max(x, axis=1)"),
        ("Maximum", "F.maximum(x, y)", "x=2,5 y=2,5"),
        ("Mean", "F.mean(x, axis=1)"), ("Min", "F.min(x, axis=1, keepdims=True)"),
        ("Minimum", "F.minimum(x, y)", "x=2,5 y=2,5"),
        ("Mul", "x * y", "x=2,5 y=2,5"),
        ("MulConstant", "x * 3"), ("Neg", "-x"), ("PowConstVar", "2 ** x"),
        ("PowVarConst", "x ** 2"),
        ("PowVarVar", "abs(x) ** y", "x=2,5 y=2,5"),
        ("Prod", "F.prod(x, axis=1)"), ("sign", "F.sign(x)"), ("Sin", "F.sin(x)"),
        ("Sinh", "F.sinh(x)"), ("Sqrt", "F.sqrt(abs(x))"), ("Square", "F.square(x)"),
        ("Sub", "x - y", "x=2,5 y=2,5"),
        ("SubFromConstant", "2 - x"),
        ("Sum", "F.sum(x, axis=(1, 2))", "x=2,3,4"),
        ("Sum", "F.sum(x, keepdims=True)"), ("Tan", "F.tan(x)"),
        # noise
        ("Dropout", "training(lambda: F.dropout(x, mask=np.ones((2, 5), 'f')))"),
        # normalization
        ("FixedBatchNormalization", "l(x)", "x=2,3,4,4", "L.BatchNormalization(3)"),
        ("FixedBatchNormalization", "l(x)", "x=2,3",
         "L.BatchNormalization(3, use_gamma=False, use_beta=False)"),
        ("GroupNormalization", "l(x)", "x=2,4,5,5", "L.GroupNormalization(2, 4)"),
        ("LocalResponseNormalization", "F.local_response_normalization(x)", "x=2,8,4,4"),
        ("NormalizeL2", "F.normalize(x)"),
        # pooling
        ("AveragePooling2D", "F.average_pooling_2d(x, 3, stride=2, pad=1)", "x=2,3,8,8"),
        ("AveragePoolingND", "F.average_pooling_1d(x, 3, stride=2, pad=1)", "x=2,3,9"),
        ("AveragePoolingND", "F.average_pooling_3d(x, 2)", "x=2,3,4,4,4"),
        ("MaxPoolingND", "F.max_pooling_2d(x, 3, stride=2)", "x=2,3,8,8"),
        ("MaxPoolingND", "F.max_pooling_2d(x, 2, cover_all=False)", "x=2,3,8,8"),
        ("MaxPoolingND", "F.max_pooling_1d(x, 3, stride=2)", "x=2,3,9"),
        ("MaxPoolingND", "F.max_pooling_3d(x, 2, cover_all=False)", "x=2,3,4,4,4"),
        ("ROIPooling2D", "F.roi_pooling_2d(F.relu(x), np.array([[1, 0, 0, 3, 5]], 'f'), 2, 2, 1.0)",
         "x=2,3,6,6"),
        ("Unpooling2D", "F.unpooling_2d(x, 2, cover_all=False)", "x=2,3,4,4"),
        ("Unpooling2D", "F.unpooling_2d(x, 2)", "x=2,3,4,4"),
        # recurrent
        ("n_step_gru", "l(None, [x, y])[0]", "x=3,4 y=3,4", "L.NStepGRU(1, 4, 5, 0.0)"),
        ("n_step_gru", "F.concat(l(h, [x, y])[1])", "h=2,2,5 x=3,4 y=3,4",
         "L.NStepGRU(2, 4, 5, 0.0)"),
        ("LSTM", "F.lstm(c, x)", "c=2,3 x=2,12"),
        ("LSTM", "l(x)", "x=2,4", "L.LSTM(4, 3)"),
        ("n_step_lstm", "F.concat(l(None, None, [x, y])[2])", "x=3,4 y=3,4",
         "L.NStepLSTM(1, 4, 5, 0.0)"),
        ("n_step_bilstm", "F.concat(l(h, c, [x, y])[2])", "h=4,2,5 c=4,2,5 x=3,4 y=3,4",
         "L.NStepBiLSTM(2, 4, 5, 0.0)"),
    )
)
# fmt: on
