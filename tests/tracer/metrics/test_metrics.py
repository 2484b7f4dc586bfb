"""Metrics against torch, scikit-learn and numpy's own argmax."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.graphs import parse
from tracer import metrics
from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.opening import open_dataset
from tracer.metrics.scores import (
    channel_squares,
    class_counts,
    no_hit_note,
    one_class_note,
    unlike_channels_note,
)
from tracer.quantization.layers import check_metric
from tracer.whatif.criteria import checked_metric

quick = examples(60)


def scored(name, outputs, truth):
    return metrics.find(name).scores({"out": outputs}, truth)


@quick
@given(st.integers(1, 30), st.integers(6, 12), st.integers(0, 10**6))
def test_top_k_is_what_scikit_learn_and_argmax_say(count, classes, seed):
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(float(classes)), (count, 1)), axis=1)
    labels = rng.integers(0, classes, count)
    top1, top5 = scored("top1", scores, labels), scored("top5", scores, labels)
    np.testing.assert_array_equal(top1, scores.argmax(1) == labels)
    expected = sklearn.top_k_accuracy_score(labels, scores, k=5, labels=range(classes))
    assert metrics.find("top5").value(top5) == pytest.approx(100 * expected)


@quick
@given(st.integers(1, 30), st.integers(0, 10**6), st.sampled_from([np.int64, np.int32, np.uint8]))
def test_numbers_of_classes_are_scored_as_scikit_learn_scores_them(count, seed, dtype):
    sklearn = pytest.importorskip("sklearn.metrics")
    ours, theirs, labels = np.random.default_rng(seed).integers(0, 3, (3, count), dtype)
    for name, truth, expected in (("top1", labels, labels), ("agreement", {"out": theirs}, theirs)):
        value = metrics.find(name).value(scored(name, ours, truth))
        assert value == pytest.approx(100 * sklearn.accuracy_score(expected, ours))
        batch = Batch({}, count, labels if name == "top1" else None)
        assert metrics.default_metric(batch, ours).name == name
    classes, counts = class_counts(metrics.find("top1"), {"out": ours})
    assert dict(zip(classes, counts, strict=True)) == Counter(ours.tolist())


def test_of_equal_scores_the_first_counts_as_in_argmax():
    scores = np.random.default_rng(0).integers(0, 3, (200, 7)).astype(np.int8)
    for label in range(7):
        top1 = scored("top1", scores, np.full(200, label))
        np.testing.assert_array_equal(top1, scores.argmax(1) == label)


def test_mse_is_that_of_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    outputs, labels = rng.random((6, 4, 2), np.float32), rng.random((6, 4, 2), np.float32)
    mse = metrics.find("mse")
    expected = torch.nn.functional.mse_loss(torch.from_numpy(outputs), torch.from_numpy(labels))
    value = mse.value(mse.scores({"out": outputs}, labels))
    assert value == pytest.approx(float(expected), rel=1e-6)
    assert not mse.higher_is_better
    np.testing.assert_allclose(scored("mse", np.ones((3, 1)), np.array([1, 2, 4])), [0, 1, 9])


def test_agreement_is_the_share_of_equal_choices():
    rng = np.random.default_rng(0)
    ours, theirs = rng.random((2, 50, 6, 9))
    for axis in (1, 2):
        agreement = scored(f"agreement@{axis}", ours, {"out": theirs})
        np.testing.assert_allclose(agreement, (ours.argmax(axis) == theirs.argmax(axis)).mean(1))
    assert scored("agreement", ours[:, 0], {"out": ours[:, 0]}).tolist() == [1] * 50
    assert not metrics.find("agreement").needs_labels


def test_pixels_agree_where_torch_s_argmax_over_channels_does():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    ours, theirs = rng.random((2, 5, 3, 4, 6), np.float32)
    same = torch.from_numpy(ours).argmax(1) == torch.from_numpy(theirs).argmax(1)
    expected = same.double().mean((1, 2)).numpy()
    np.testing.assert_allclose(scored("agreement", ours, {"out": theirs}), expected)
    last = [np.moveaxis(each, 1, -1) for each in (ours, theirs)]
    for axis, (mine, others) in {"1": (ours, theirs), "-1": last, "3": last}.items():
        agreement = scored(f"agreement@{axis}", mine, {"out": others})
        np.testing.assert_allclose(agreement, expected)


def test_three_axes_do_not_tell_which_has_the_classes():
    output = {"out": np.zeros((4, 22, 90), np.float32)}
    metric = metrics.find("agreement")
    for use in (lambda: metric.scores(output, output), lambda: metric.predictions(output)):
        with pytest.raises(
            InputError, match=r"\[4, 22, 90\] does not tell .* Give agreement@1 for"
        ):
            use()


@pytest.mark.parametrize(
    ("spec", "shape"),
    [("agreement", (4,)), ("agreement", (4, 1)), ("agreement", (4, 1, 8, 8)),
     ("agreement@2", (4, 5)), ("agreement@-2", (4, 5)), ("agreement@-3", (4, 5))],
)  # fmt: skip
def test_without_classes_there_is_no_agreement(spec, shape):
    output = np.zeros(shape, np.float32)
    with pytest.raises(InputError, match=r"needs two or more classes.*agreement@1"):
        scored(spec, output, {"out": output})


@pytest.mark.parametrize("spec", ["agreement@0", "agreement@", "agreement@x", "top1@1"])
def test_an_axis_that_is_none_is_no_metric(spec):
    with pytest.raises(UsageError, match="there is no metric"):
        metrics.find(spec)


SCORES = np.arange(12.0).reshape(2, 6)


@pytest.mark.parametrize(
    ("name", "outputs", "truth", "message"),
    [
        ("top1", SCORES, np.array([0, 6]), "a label is 6, but the model has 6 classes, 0 to 5"),
        ("top1", SCORES, np.array([-1, 0]), "a label is -1"),
        ("top1", SCORES, np.array([0, 1, 2]), r"labels int64\[3\] do not fit outputs \[2, 6\]"),
        ("top1", SCORES, np.array([0.0, 1.0]), r"labels float64\[2\] do not fit"),
        ("top1", SCORES[0], np.array([0]), r"output \[6\] is not the scores of classes"),
        ("top1", np.arange(3), np.array([0, 1]), r"labels int64\[2\] do not fit outputs \[3\]"),
        ("top5", np.arange(3), np.arange(3), r"output \[3\] is not the scores of classes"),
        ("top5", SCORES[:, :4], np.array([0, 1]), "top5 of 4 classes is always right"),
        ("top1", SCORES * np.nan, np.array([0, 1]), "the output of sample 0 .*NaN"),
        ("mse", SCORES, np.zeros((2, 5)), r"float64\[2, 5\] do not fit an output \[2, 6\]"),
        ("mse", SCORES, np.zeros((2, 3, 2)), r"\[2, 3, 2\] are not in the shape"),
        ("mse", np.array(["a", "b"]), np.array(["a", "b"]), "the labels are text"),
        ("mse", SCORES * np.nan, SCORES, "score of sample 0 of the batch is not a number"),
        ("agreement", SCORES, {"out": SCORES[:1]}, r"are \[2, 6\], the reference's are"),
        ("agreement", SCORES[:, :1], {"out": SCORES[:, :1]}, "needs two or more classes"),
        ("agreement", SCORES, {"out": SCORES * np.nan}, "NaN"),
    ],
)
def test_what_does_not_fit_is_refused(name, outputs, truth, message):
    with pytest.raises(InputError, match=message):
        scored(name, outputs, truth)


@quick
@given(st.integers(1, 6), st.integers(0, 10**6), st.floats(1e-3, 0.5))
def test_noise_is_the_sqnr_of_onnxruntime_as_a_share(count, seed, size):
    sqnr = pytest.importorskip("onnxruntime.quantization.qdq_loss_debug")
    rng = np.random.default_rng(seed)
    wide = rng.normal(0, 3, (count, 5, 2)).astype(np.float32)
    ours = wide + rng.uniform(-size, size, wide.shape).astype(np.float32)
    decibels = -10 * np.log10(scored("noise", ours, {"out": wide}))
    each = sqnr.compute_signal_to_quantization_noice_ratio
    expected = [each(x, y) for x, y in zip(wide, ours, strict=True)]
    np.testing.assert_allclose(decibels, expected, rtol=1e-4)


def test_the_noisiest_output_counts_and_one_output_can_be_chosen():
    reference = {"boxes": np.full((2, 4), 300.0), "scores": np.full((2, 3, 2), 0.02)}
    outputs = {"boxes": reference["boxes"] + 1, "scores": np.zeros((2, 3, 2))}
    of = lambda name: metrics.find(name).scores(outputs, reference)  # noqa: E731
    assert of("noise").tolist() == of("noise@scores").tolist() == [1, 1]
    np.testing.assert_allclose(of("noise@boxes"), 1 / 300**2)
    np.testing.assert_allclose(of("mse@scores"), 0.02**2)
    with pytest.raises(InputError, match=r"no output 'classes'. It has boxes, scores"):
        of("noise@classes")


def test_channel_noise_is_the_sqnr_of_the_worst_channel_of_each_sample():
    sqnr = pytest.importorskip("onnxruntime.quantization.qdq_loss_debug")
    each = sqnr.compute_signal_to_quantization_noice_ratio
    random = np.random.default_rng(5)
    wide = random.normal(0, 1, (4, 3, 50)) * [[[300.0], [300.0], [0.02]]]
    ours = wide + random.normal(0, 0.01, wide.shape)
    pairs = zip(wide, ours, strict=True)
    expected = [min(each(x, y) for x, y in zip(*pair, strict=True)) for pair in pairs]
    for spec, axis in (("channel-noise@1", 1), ("channel-noise@-2", 1), ("channel-noise@2", 2)):
        moved = [np.moveaxis(value, 1, axis) for value in (wide, ours)]
        decibels = -10 * np.log10(scored(spec, moved[1], {"out": moved[0]}))
        np.testing.assert_allclose(decibels, expected, rtol=1e-6)
    images = [value.reshape(4, 3, 5, 10) for value in (wide, ours)]
    decibels = -10 * np.log10(scored("channel-noise", images[1], {"out": images[0]}))
    np.testing.assert_allclose(decibels, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [("channel-noise", (4, 22, 90), r"\[4, 22, 90\] does not tell .* Give channel-noise@1 for"),
     ("channel-noise", (4, 22), "needs channels of several values.* Give noise, or"),
     ("channel-noise@3", (4, 22, 90), r"in axis 3 of the output, which is \[4, 22, 90\]")],
)  # fmt: skip
def test_without_channels_there_is_no_channel_noise(spec, shape, message):
    output = np.zeros(shape, np.float32)
    with pytest.raises(InputError, match=message):
        scored(spec, output, {"out": output})


def unlike_channels(name, batches):
    metric = metrics.find(name)
    return unlike_channels_note(metric, [channel_squares(metric, each) for each in batches])


def test_channels_that_a_metric_hides_are_told():
    boxes_and_scores = np.ones((2, 6, 90)) * np.array([320.0] * 4 + [0.02] * 2)[:, None]
    note = unlike_channels("noise", [{"out": boxes_and_scores}] * 2)
    assert "output 'out' (axis 1) are 16,000 times those of others, whose loss noise does" in note
    assert note.endswith("Give --metric channel-noise@1")
    last = np.moveaxis(boxes_and_scores, 1, 2)
    assert "channel-noise@2" in unlike_channels("mse", [{"out": last}])
    alike = {"out": np.random.default_rng(0).random((2, 6, 90)), "label": np.ones((2, 3))}
    assert unlike_channels("noise", [alike]) is None
    assert unlike_channels("agreement@1", [{"out": boxes_and_scores}]) is None
    assert unlike_channels("noise", [{"out": np.zeros((2, 6, 90))}]) is None


def test_noise_of_silence_and_of_nothing_in_common_is_bounded():
    wide = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]])
    ours = np.array([[0.0, 0.0], [0.1, 0.0], [-50.0, 80.0]])
    assert scored("noise", ours, {"out": wide}).tolist() == [0, 1, 1]


def test_mse_without_labels_compares_with_the_reference():
    torch = pytest.importorskip("torch")
    ours, theirs = np.random.default_rng(0).random((2, 6, 4), np.float32)
    mse = metrics.suited(metrics.find("mse"), Batch({}, 6), ours)
    assert not mse.needs_labels
    expected = torch.nn.functional.mse_loss(torch.from_numpy(ours), torch.from_numpy(theirs))
    value = mse.value(mse.scores({"out": ours}, {"out": theirs}))
    assert value == pytest.approx(float(expected), rel=1e-6)
    assert metrics.suited(metrics.find("mse"), Batch({}, 6, ours), ours).needs_labels


@pytest.mark.parametrize(
    ("shape", "labels", "expected"),
    [((4, 10), None, "agreement"), ((4, 22, 90), None, "noise"), ((4, 1), None, "noise"),
     ((4, 10), np.arange(4), "top1"), ((4, 2, 3), np.zeros((4, 2, 3)), "mse"),
     ((4, 2, 3), np.arange(4), None)],
)  # fmt: skip
def test_the_default_fits_labels_and_output(shape, labels, expected):
    metric = metrics.default_metric(Batch({}, 4, labels), np.zeros(shape, np.float32))
    assert (metric and metric.name) == expected


def one_class(name, batches):
    metric = metrics.find(name)
    return one_class_note(metric, [class_counts(metric, each) for each in batches])


def test_predictions_of_one_class_are_told():
    of_class = lambda *classes: {"out": np.eye(3)[list(classes)]}  # noqa: E731
    alike, varied = [of_class(2, 2, 2), of_class(2)], [of_class(2, 1), of_class(0, 2)]
    told = "100.0% of the 4 predictions of the reference are class 2"
    assert told in one_class("agreement", alike)
    assert one_class("agreement", varied) is None
    assert one_class("noise", alike) is None


def test_a_reference_without_a_hit_is_told():
    told = "the reference is right in 0 of 3 samples: top1 proves little here"
    outputs = np.eye(3)
    for labels, note in (([1, 2, 0], told), ([0, 2, 1], None)):
        found = no_hit_note(metrics.find("top1"), scored("top1", outputs, np.array(labels)))
        assert (found or "").startswith(note or "") and (found is None) == (note is None)
    assert no_hit_note(metrics.find("noise"), np.zeros(3)) is None


def checked_by_name(model, dataset, name):
    check_metric(model, dataset, metrics.find(name))


@pytest.mark.parametrize("check", [checked_metric, checked_by_name])
def test_an_output_that_is_not_a_number_is_told_with_the_file_of_its_data(check, tmp_path):
    model = loading.from_proto(parse("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N,4] x) => (float[N,4] y) { y = Log (x) }
    """))  # fmt: skip
    data = {"x": -np.ones((2, 4), np.float32), "labels": np.arange(2)}
    np.savez(tmp_path / "negative.npz", **data)
    dataset = open_dataset(str(tmp_path / "negative.npz"), model, folder=tmp_path)
    with pytest.raises(InputError, match=r"negative\.npz: the output of sample 0"):
        check(model, dataset, "top1")


def test_a_reference_without_a_hit_in_its_only_sample_is_told():
    note = no_hit_note(metrics.find("top1"), np.zeros(1)) or ""
    assert note.startswith("the reference is right in 0 of 1 sample: ")


def test_labels_that_a_data_set_does_not_have_are_missed():
    with pytest.raises(InputError, match=r"top1 needs labels, which set.npz does not have"):
        metrics.find("top1").labels(Batch({}, 1), "set.npz")
    labels = np.arange(2)
    assert metrics.find("top1").labels(Batch({}, 2, labels), "x") is labels


OWN = """
import numpy as np
def near(outputs, labels):
    return np.abs(outputs[:, 0] - labels) < 1
def loud(outputs, labels):
    assert labels is None
    return outputs["a"][:, 0] + outputs["b"]
loud.needs_labels, loud.higher_is_better, loud.unit = False, False, "dB"
def mean(outputs, labels):
    return outputs.mean()
def fails(outputs, labels):
    first = 1
    return outputs / unknown
text = "no function"
def leaves(outputs, labels):
    raise SystemExit(3)
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own_metric.py").write_text(OWN)
    return lambda name: metrics.find(f"{tmp_path / 'own_metric.py'}:{name}")


def test_a_metric_of_ones_own(own):
    near = own("near")
    assert near.scores({"out": np.array([[1.0], [5.0]])}, np.array([1.5, 1.5])).tolist() == [1, 0]
    assert (near.needs_labels, near.higher_is_better, near.unit) == (True, True, "")
    loud = own("loud")
    assert loud.scores({"a": np.ones((2, 1)), "b": np.array([1, 2])}, None).tolist() == [2, 3]
    assert (loud.needs_labels, loud.higher_is_better, loud.unit) == (False, False, "dB")


def test_a_metric_of_ones_own_that_fails_is_told_with_file_and_line(own, tmp_path):
    outputs = {"out": np.ones((2, 3))}
    with pytest.raises(InputError, match=r"fails raised NameError: .*own_metric.py, line 13\)"):
        own("fails").scores(outputs, None)
    with pytest.raises(InputError, match=r"returned float64\[\] for 2 .*own_metric.py, line 9\)"):
        own("mean").scores(outputs, None)
    with pytest.raises(InputError, match=r"leaves raised SystemExit: 3 .*own_metric.py, line 16"):
        own("leaves").scores({"y": np.zeros((2, 3))}, np.zeros(2))
    with pytest.raises(InputError, match=r"own_metric.py has no function 'text'"):
        own("text")
    with pytest.raises(InputError, match=r"none.py: no such file"):
        metrics.find("none.py:f")
    (tmp_path / "broken_metric.py").write_text("x = 1\ny = (")
    with pytest.raises(InputError, match=r"raised SyntaxError: .*broken_metric.py, line 2\)"):
        metrics.find(f"{tmp_path / 'broken_metric.py'}:f")


def test_an_unknown_metric_is_answered_with_those_there_are():
    with pytest.raises(
        UsageError,
        match=r"'f1'. There are top1, top5, mse, noise, channel-noise, agreement, perplexity, "
        "bits-per-byte; ",
    ):
        metrics.find("f1")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["noise", "mse", "channel-noise"])
def test_infinite_outputs_have_no_score_and_no_warning(name):
    outputs = {"y": np.full((2, 3, 4, 4), np.inf, np.float32)}
    metric = replace(metrics.find(name), needs_labels=False)
    metric = metric if metric.unlabelled is None else replace(metric, function=metric.unlabelled)
    with pytest.raises(InputError, match="sample 0 of the batch is not a number"):
        metric.scores(outputs, outputs)
