"""Models of scikit-learn, as skl2onnx exports them, against onnxruntime: the domain ai.onnx.ml."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.interpreter.models import onnxruntime
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph.loading import open_model
from tracer.interpreter.interpreter import Interpreter
from tracer.shapes import infer

sklearn = pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")
OPSETS = {"": 18, "ai.onnx.ml": 3}


def _flowers():
    from sklearn.datasets import load_iris

    x, y = load_iris(return_X_y=True)
    return x.astype(np.float32), y


def _classifiers():
    from sklearn import ensemble, linear_model, naive_bayes, neighbors, svm, tree

    return {
        "logistic": linear_model.LogisticRegression(),
        "svc rbf": svm.SVC(),
        "svc poly": svm.SVC(kernel="poly"),
        "svc sigmoid": svm.SVC(kernel="sigmoid"),
        "svc linear": svm.SVC(kernel="linear"),
        "tree": tree.DecisionTreeClassifier(max_depth=4, random_state=0),
        "forest": ensemble.RandomForestClassifier(5, random_state=0),
        "boosted": ensemble.GradientBoostingClassifier(n_estimators=3, random_state=0),
        "neighbours": neighbors.KNeighborsClassifier(),
        "bayes": naive_bayes.GaussianNB(),
    }


def _regressors():
    from sklearn import ensemble, linear_model, neighbors, svm, tree

    return {
        "linear": linear_model.LinearRegression(),
        "svr": svm.SVR(),
        "tree": tree.DecisionTreeRegressor(max_depth=4, random_state=0),
        "forest": ensemble.RandomForestRegressor(5, random_state=0),
        "neighbours": neighbors.KNeighborsRegressor(),
    }


def _transformers():
    from sklearn import preprocessing

    return [
        preprocessing.StandardScaler(), preprocessing.MinMaxScaler(),
        preprocessing.RobustScaler(), preprocessing.Binarizer(threshold=1.0),
        *(preprocessing.Normalizer(norm) for norm in ("l1", "l2", "max")),
    ]  # fmt: skip


def _exported(model, x, **options):
    from skl2onnx import to_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = {id(model): options} if options else None
        return to_onnx(model, x[:1], target_opset=OPSETS, options=chosen)


def _check(exported, feeds):
    theirs = onnxruntime(exported, feeds)
    for ours, expected in zip(Interpreter(exported).run(None, feeds), theirs, strict=True):
        if isinstance(expected, list):  # maps from labels to scores
            assert [list(each) for each in ours] == [list(each) for each in expected]
            ours, expected = (np.array([list(d.values()) for d in m]) for m in (ours, expected))
        else:
            assert ours.dtype == expected.dtype
        if expected.dtype == object:
            np.testing.assert_array_equal(ours, expected)
        else:
            np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=1e-5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", list(_classifiers()))
@pytest.mark.parametrize("zipmap", [True, False])
def test_classifiers(name, zipmap):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = _flowers()
    model = make_pipeline(StandardScaler(), _classifiers()[name]).fit(x, y)
    _check(_exported(model, x, zipmap=zipmap), {"X": x})


def test_the_parameters_of_a_linear_model_and_of_support_vectors_are_those_of_sklearn():
    from sklearn import linear_model, svm

    x, y = _flowers()
    linear, support = linear_model.LogisticRegression().fit(x, y), svm.SVR().fit(x, y)
    learned = {
        linear: (linear.coef_, linear.intercept_),
        support: (support.support_vectors_, support.dual_coef_, support.intercept_),
    }
    for model, arrays in learned.items():
        proto = open_model(_exported(model, x))
        params, nbytes = cost(TypedModel(proto, infer(proto, {"X": (1, 4)}))).parameters
        assert params == sum(array.size for array in arrays)
        assert nbytes == 4 * params


@pytest.mark.parametrize("labels", [[0, 1, 2], ["a", "b", "c"], [False, True, True]])
def test_probabilities_of_support_vectors(labels):
    """Of three classes they are coupled, which onnx.reference does wrongly."""
    from sklearn.svm import SVC

    x, y = _flowers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SVC(probability=True, random_state=0).fit(x, np.array(labels)[y])
    _check(_exported(model, x, zipmap=False), {"X": x})


@pytest.mark.parametrize("name", list(_regressors()))
def test_regressors(name):
    x, y = _flowers()
    _check(_exported(_regressors()[name].fit(x, y * 0.7), x), {"X": x})


@pytest.mark.parametrize("model", _transformers(), ids=str)
def test_transformers(model):
    x, _ = _flowers()
    _check(_exported(model.fit(x), x), {"X": x})


def test_missing_values_are_imputed():
    from sklearn.impute import SimpleImputer

    x, _ = _flowers()
    x[::3, 1] = np.nan
    _check(_exported(SimpleImputer().fit(x), x), {"X": x})


def test_categories():
    from sklearn.preprocessing import OneHotEncoder

    x = np.array([["a", "x"], ["b", "y"], ["c", "x"]], object)
    encoder = OneHotEncoder(handle_unknown="ignore").fit(x)
    _check(_exported(encoder, x), {"X": np.array([["b", "x"], ["q", "y"]], object)})


def _work(exported):
    model = open_model(exported)
    return cost(TypedModel(model, infer(model, {"X": (10, 4)})))


def test_work_of_a_scaler_and_a_linear_model():
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = _flowers()
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(x, y)
    counted = _work(_exported(model, x))
    assert counted.unknown == ()
    assert counted.table["macs"].sum() == 10 * 4  # ten rows, four weights


def test_work_of_support_vectors():
    from sklearn.svm import SVR

    x, y = _flowers()
    model = SVR(kernel="linear").fit(x, y)
    vectors = len(model.support_vectors_)
    assert _work(_exported(model, x)).table["macs"].sum() == 10 * (4 * vectors + vectors)


def test_work_of_trees_depends_on_the_data_unless_all_leaves_are_as_deep():
    from sklearn.tree import DecisionTreeRegressor

    x, y = _flowers()
    stump = _work(_exported(DecisionTreeRegressor(max_depth=1).fit(x, y), x))
    assert stump.unknown == ()
    assert stump.table["flops"].sum() == 10 * (1 + 1)  # a comparison and an addition for each row
    deep = DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, y)
    (reason,) = _work(_exported(deep, x)).unknown
    assert f"to {deep.get_depth()} comparisons" in reason
