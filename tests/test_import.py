"""``import domainwise`` loads no optional dependency."""

import json
import subprocess
import sys
from functools import cache

OPTIONAL = {
    "dask",
    "distributed",
    "jinja2",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "pandas",
    "polars",
    "pyarrow",
    "rich",
    "skl2onnx",
    "skops",
    "torch",
    "triton",
    "typer",
}


@cache
def modules_after(statement):
    """Top-level modules that a fresh interpreter has loaded after a statement."""
    code = (
        f"{statement}\nimport json, sys\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    return set(json.loads(out))


#: What the core may lean on, with what these load themselves.
CORE = """
import joblib, numpy, scipy.linalg, scipy.sparse.linalg, scipy.spatial.distance, threadpoolctl
import sklearn.base, sklearn.metrics, sklearn.model_selection, sklearn.preprocessing, sklearn.svm
import sklearn.cluster, sklearn.utils.validation
"""


def test_importing_the_package_imports_no_optional_dependency():
    loaded = modules_after("import domainwise")
    assert "domainwise" in loaded
    assert not (loaded & OPTIONAL) - modules_after(CORE)


def test_importing_the_package_imports_little_except_scikit_learn():
    extra = modules_after("import domainwise") - modules_after(CORE)
    extra -= set(sys.stdlib_module_names)
    assert {name for name in extra if not name.startswith("_")} <= {"domainwise"}


def test_fitting_and_projecting_imports_no_optional_dependency():
    statement = (
        "import numpy as np, domainwise\n"
        "X = np.random.default_rng(0).normal(size=(20, 3))\n"
        "domainwise.DCM().fit(X, np.arange(20) % 2, sample_domain=np.arange(20) % 3).transform(X)"
    )
    assert not (modules_after(statement) & OPTIONAL) - modules_after(CORE)
