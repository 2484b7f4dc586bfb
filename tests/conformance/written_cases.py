"""Written cases of the standard domain; `written` says what they are."""

from tests.conformance.written import Written


def _along(operator: str, shape: str, axis: int, aligned: str, kind: str = "float") -> Written:
    """An operator of two inputs, the second of which begins at `axis` of the first."""
    out = "bool" if operator in ("And", "Or", "Xor", "Equal", "Less", "Greater") else kind
    head = f"({kind}[2,3,4,5] x, {kind}[{shape}] y) => ({out}[2,3,4,5] z)"
    return Written(
        f"{head} {{ z = {operator} <broadcast = 1, axis = {axis}> (x, y) }}",
        until=6,
        like=f"{head} {{ s = Constant <value_ints = [{aligned}]> ()"
        f" a = Reshape (y, s) z = {operator} (x, a) }}",
    )


def _drawn_by(draw: str, since: int, opset: int = 0) -> Written:
    """Draws r, whose mean and variance are halves: four times each is rounded to an integer."""
    return Written(
        f"() => (float m, float v) {{ four = Constant <value = float {{4.0}}> () {draw}"
        " a = ReduceMean <keepdims = 0> (r) d = Sub (r, a) q = Mul (d, d)"
        " b = ReduceMean <keepdims = 0> (q)"
        " e = Mul (a, four) f = Mul (b, four) m = Round (e) v = Round (f) }",
        since=since, until=since, opset=opset,
    )  # fmt: skip


def _draws(draw: str, first: int = 1) -> list[Written]:
    return [_drawn_by(draw, first, opset=15), _drawn_by(draw, 22)]


def _aligned(*operators: str, kind: str = "float") -> dict[str, list[Written]]:
    return {
        name: [
            _along(name, "3,4", 1, "1, 3, 4, 1", kind),
            _along(name, "2", 0, "2, 1, 1, 1", kind),
            _along(name, "4", -2, "1, 1, 4, 1", kind),
        ]
        for name in operators
    }


_SCALED = "(float[1,2,2,3] x) => (float[1,2,4,9] y) "
_REPEATED = "(float[2,3] x) => (float[2,12] y) { "
_POOL = "(float[2,3,5,6] x) => (float[2,3,1,1] y) "
_SEQUENCE = "(float[2,3] a, float[3] b, float[2,3] c) => (float[?] y) "
_TABLE = """n = Constant <value = int64[2] {100, 300}> ()
    x = ConstantOfShape <value = float[1] {0.5}> (n) """
CASES: dict[str, list[Written]] = {
    **_aligned("Add", "Sub", "Mul", "Div", "Pow", "Greater", "Less"),
    **_aligned("And", "Or", "Xor", kind="bool"),
    **_aligned("Equal", kind="int64"),
    "PRelu": [
        Written(
            "(float[2,3,4,5] x, float[3] s) => (float[2,3,4,5] y) { y = PRelu (x, s) }",
            until=6,
            like="(float[2,3,4,5] x, float[3] s) => (float[2,3,4,5] y)"
            " { n = Constant <value_ints = [3, 1, 1]> () a = Reshape (s, n) y = PRelu (x, a) }",
        )
    ],
    "Dropout": [
        Written(
            "(float[2,3] x) => (float[2,3] z)"
            " { y, mask = Dropout <is_test = 1> (x) o = Sub (mask, mask) z = Add (o, y) }",
            until=6,
            like="(float[2,3] x) => (float[2,3] z) { z = Identity (x) }",
        ),
        Written(
            "(float[2,3] x) => (float[2,3] z)"
            " { y, mask = Dropout (x) o = Sub (mask, mask) z = Add (o, y) }",
            since=7,
            until=7,
        ),
    ],
    "Tile": [
        Written(
            _REPEATED + "t = Constant <value = float {4.0}> ()"
            " a = Constant <value = float {1.0}> () y = Tile (x, t, a) }",
            until=1,
            like=_REPEATED + "t = Constant <value_ints = [1, 4]> () y = Tile (x, t) }",
        )
    ],
    "Upsample": [
        Written(
            _SCALED + "{ y = Upsample <height_scale = 2.0, width_scale = 3.0,"
            ' mode = "bilinear"> (x) }',
            until=1,
            like=_SCALED + "{ r = Constant <value_floats = [0.0]> ()"
            " s = Constant <value_floats = [1.0, 1.0, 2.0, 3.0]> ()"
            ' y = Resize <mode = "linear", coordinate_transformation_mode = "asymmetric">'
            " (x, r, s) }",
        )
    ],
    "Loop": [
        Written(
            "(float[2] x) => (float[2] y, float[3,2] all)"
            " { n = Constant <value = int64 {3}> () go = Constant <value = bool {1}> ()"
            " y, all = Loop (n, go, x) <body = b (int64 i, bool more, float[2] v)"
            " => (bool again, float[2] w, float[2] seen)"
            " { again = Identity (more) w = Add (v, v) seen = Identity (w) }> }",
        )
    ],
    "GlobalLpPool": [
        Written(_POOL + "{ y = GlobalLpPool <p = 3.0> (x) }", until=1,
                like=_POOL + "{ y = GlobalLpPool <p = 3> (x) }"),
        Written(_POOL + "{ y = GlobalLpPool <p = 3> (x) }", since=2),
        Written(_POOL + "{ y = GlobalLpPool (x) }"),
    ],
    "MaxRoiPool": [
        Written(
            "(float[2,3,8,9] x) => (float[2,3,2,3] y) { r = Constant <value = float[2,5]"
            " {0.0, 1.0, 1.0, 6.0, 7.0, 1.0, 0.0, 2.0, 8.0, 6.0}> ()"
            " y = MaxRoiPool <pooled_shape = [2, 3], spatial_scale = 0.9> (x, r) }"
        )
    ],
    "SequenceConstruct": [
        Written(_SEQUENCE + "{ s = SequenceConstruct (a, c)"
                " y = ConcatFromSequence <axis = 1> (s) }")
    ],
    "ConcatFromSequence": [
        Written(_SEQUENCE + "{ s = SequenceConstruct (a, c)"
                " y = ConcatFromSequence <axis = -2, new_axis = 1> (s) }"),
        Written(_SEQUENCE + "{ s = SequenceConstruct (a, c)"
                " y = ConcatFromSequence <axis = 0> (s) }"),
    ],
    "SequenceAt": [
        Written(_SEQUENCE + "{ s = SequenceConstruct (a, b, c)"
                " i = Constant <value = int64 {-2}> () y = SequenceAt (s, i) }")
    ],
    "SequenceErase": [
        Written(_SEQUENCE + "{ s = SequenceConstruct (a, b, c)"
                " i = Constant <value = int64 {1}> () t = SequenceErase (s, i)"
                " y = ConcatFromSequence <axis = 0> (t) }"),
        Written(_SEQUENCE + "{ s = SequenceConstruct (b, c, a) t = SequenceErase (s)"
                " j = Constant <value = int64 {1}> () y = SequenceAt (t, j) }"),
    ],
    "SequenceLength": [
        Written("(float[2] a) => (int64 y) { s = SequenceConstruct (a, a, a)"
                " y = SequenceLength (s) }")
    ],
    "SequenceEmpty": [
        Written("(float[2] a) => (int64 y, float[2] z) { e = SequenceEmpty <dtype = 1> ()"
                " y = SequenceLength (e) s = SequenceInsert (e, a)"
                " i = Constant <value = int64 {0}> () z = SequenceAt (s, i) }")
    ],
    "RandomNormal": _draws(
        "r = RandomNormal <shape = [100, 300], mean = 1.5, scale = 1.0, seed = 3.0> ()"
    ),
    "RandomNormalLike": _draws(
        _TABLE + "r = RandomNormalLike <mean = -0.5, scale = 1.0, seed = 3.0> (x)"
    ),
    "RandomUniform": _draws(
        "r = RandomUniform <shape = [100, 300], low = -3.0, high = 3.0, seed = 3.0> ()"
    ),
    "RandomUniformLike": _draws(
        _TABLE + "r = RandomUniformLike <low = -2.5, high = 3.5, seed = 3.0> (x)"
    ),
    "Bernoulli": _draws(_TABLE + "r = Bernoulli <seed = 3.0> (x)", first=15),
    "Multinomial": _draws(
        "x = Constant <value = float[1,3] {-40.0, 1.0, 1.0}> ()"
        " i = Multinomial <sample_size = 30000, seed = 3.0> (x) r = Cast <to = 1> (i)", first=7
    ),
    "Optional": [
        Written("(float[2] a) => (bool h, float[2] y) { o = Optional (a)"
                " h = OptionalHasElement (o) y = OptionalGetElement (o) }")
    ],
}  # fmt: skip
