"""The data set that is part of the package."""

import builtins

import numpy as np
import pytest

pytest.importorskip("pandas")

from domainwise.datasets import load_heart


def test_heart_has_the_described_counts():
    heart = load_heart(as_frame=True)
    counts = heart.sample_domain.value_counts().to_dict()
    assert counts == {"cleveland": 303, "hungarian": 294, "va": 200, "switzerland": 123}
    diseased = (100 * heart.target.groupby(heart.sample_domain).mean()).round(1).to_dict()
    assert diseased == {"cleveland": 45.9, "hungarian": 36.1, "switzerland": 93.5, "va": 74.5}
    assert all(f"{share} %" in heart.DESCR for share in diseased.values())
    zero = (heart.data["chol"] == 0).groupby(heart.sample_domain).sum()
    assert zero.to_dict() == {"cleveland": 0, "hungarian": 0, "switzerland": 123, "va": 49}
    missing = heart.data["ca"].isna().groupby(heart.sample_domain).mean()
    assert missing["cleveland"] < 0.02
    assert missing.drop("cleveland").between(0.955, 0.995).all()
    assert "CC BY 4.0" in heart.DESCR


def test_arrays_and_frames_agree():
    heart, frames = load_heart(), load_heart(as_frame=True)
    assert heart.data.dtype == np.float64
    assert list(frames.data.columns) == heart.feature_names
    np.testing.assert_array_equal(frames.data.to_numpy(), heart.data)
    np.testing.assert_array_equal(frames.target.to_numpy(), heart.target)
    np.testing.assert_array_equal(frames.sample_domain.to_numpy(), heart.sample_domain)
    assert frames.frame.shape == (920, 15)
    assert "frame" not in heart


def test_without_pandas_the_error_names_the_extra(monkeypatch):
    real_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r'needs pandas: pip install "domainwise\[data\]"'):
        load_heart()
