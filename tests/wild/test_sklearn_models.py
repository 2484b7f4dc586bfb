"""Estimators of scikit-learn as skl2onnx writes them: values, work, kernels."""

import numpy as np
import onnx
import pytest

import tracer
from tracer.analyzers.fusions.confirmation import CONTRADICTED

pytest.importorskip("sklearn")
skl2onnx = pytest.importorskip("skl2onnx")

pytestmark = pytest.mark.nightly


def logistic():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def layers():
    from sklearn.neural_network import MLPRegressor

    return MLPRegressor(hidden_layer_sizes=(16,), max_iter=300, tol=1e-2, random_state=0)


def forest():
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(5, max_depth=4, random_state=0)


def boosted():
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(n_estimators=5, random_state=0)


def clusters():
    from sklearn.cluster import KMeans

    return KMeans(3, n_init=1, random_state=0)


MACS = {logistic: 64 * 10, layers: 64 * 16 + 16, forest: 0, boosted: 0, clusters: 64 * 3}
"""For each estimator the MACs of one sample, by its numbers of features, classes, units, centres.
Trees compare and add, and multiply nothing."""

SAMPLES = 4


@pytest.mark.parametrize("estimator", MACS, ids=lambda estimator: estimator.__name__)
def test_an_estimator(estimator, tmp_path):
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    fitted = estimator().fit(x[:200], y[:200])
    options = {"zipmap": False} if hasattr(fitted, "predict_proba") else None
    path, feeds = tmp_path / "m.onnx", tmp_path / "x.npz"
    onnx.save(skl2onnx.to_onnx(fitted, x[:1], options=options), path)
    np.savez(feeds, X=x[200 : 200 + SAMPLES])

    counted = tracer.count(path, inputs=feeds).nodes
    assert counted["macs"].sum() == SAMPLES * MACS[estimator]
    values = tracer.interpret(path, inputs=feeds, runs=1, warmup=0, against="ort").runs[0].values
    assert len(values) == len(onnx.load(path).graph.node)
    assert not [each.node for each in values if each.difference.fault or each.own.fault]
    assert CONTRADICTED not in {row.verdict for row in tracer.fusions(path, inputs=feeds).kernels}
    timed = tracer.profile(path, inputs=feeds, runs=1, warmup=0, min_time=0)
    assert timed.nodes["time_us_raw"].sum() > 0
