"""Heart disease in four hospitals: the data set that is part of the package."""

from __future__ import annotations

from pathlib import Path

from sklearn.utils import Bunch

from domainwise.base.arguments import check_arguments
from domainwise.base.messages import needs_extra

_DESCR = """\
Heart disease in four hospitals

920 patients with chest pain, from hospitals in Cleveland (303), Budapest (hungarian, 294), Zurich
and Basel (switzerland, 123) and Long Beach (va, 200). Domains are the hospitals. Target: 1 if an
artery of the heart is narrowed by more than half, else 0. The target is 1 for 55.3 % of all
patients: 36.1 % in Budapest, 45.9 % in Cleveland, 74.5 % in Long Beach and 93.5 % in Switzerland.

Features:
- age: age in years
- sex: 1 male, 0 female
- cp: chest pain, 1 typical angina, 2 atypical angina, 3 other pain, 4 none
- trestbps: blood pressure at rest, in mm Hg
- chol: cholesterol in the blood, in mg/dl
- fbs: 1 if fasting blood sugar is above 120 mg/dl
- restecg: electrocardiogram at rest, 0 normal, 1 abnormal ST-T wave, 2 enlarged left ventricle
- thalach: maximum heart rate
- exang: 1 if exercise causes chest pain
- oldpeak: ST depression caused by exercise, relative to rest
- slope: slope of the ST segment during exercise, 1 up, 2 flat, 3 down
- ca: number of major vessels visible in fluoroscopy, 0 to 3
- thal: blood flow, 3 normal, 6 fixed defect, 7 reversible defect

The hospitals did not take the same measurements. ca is missing in 96 % to 99 % of the rows outside
Cleveland, and slope and thal in many of them. chol is 0 in all rows from Switzerland and in 49 rows
from Long Beach, and trestbps is 0 in one row: these values are missing as well.

Source: the processed files in the UCI Machine Learning Repository, copied from two repositories on
GitHub. Cite: A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano, Heart Disease, UCI
Machine Learning Repository, 1989, https://doi.org/10.24432/C52P4X. The authors ask users to name
the collectors of the data: A. Janosi (Hungarian Institute of Cardiology, Budapest), W. Steinbrunn
(University Hospital, Zurich), M. Pfisterer (University Hospital, Basel), R. Detrano (V.A. Medical
Center, Long Beach, and Cleveland Clinic Foundation).
License: Creative Commons Attribution 4.0 International (CC BY 4.0). Changed: four files were
stacked into one, with added columns for the hospital and for whether there is any disease.
The copied files are processed.cleveland.data, processed.hungarian.data and
processed.switzerland.data in the GitHub repository rogerdiniz/Python_and_data_science, commit
70514956d375c656bc25fe693b68fb7b635860da, and Datasets/processed.va.data in
hiteshwarsingh1/HeartDisease-Prediction, commit b791ec9e8730124a4f3e68d903935cd7d38dcf60; the files
were stacked with a new column 'domain', and 'label' is 1 where the original diagnosis is 1 to 4.
"""


def load_heart(*, as_frame: bool = False) -> Bunch:
    """Heart disease: patients with (1) and without (0) disease in 4 hospitals; 13 features.

    Missing values are NaN. Cholesterol values (``chol``) of 0 also stand for missing values: all
    values from Switzerland, and 49 from the VA hospital.

    Parameters
    ----------
    as_frame : bool, default=False
        Whether to return pandas objects instead of arrays. If True, ``frame`` contains all columns
        of the file.

    Returns
    -------
    Bunch
        ``data`` of shape (920, 13), ``target``, ``sample_domain`` (hospital), ``feature_names`` and
        the description ``DESCR``.

    See Also
    --------
    make_synthetic : Simulated domains.

    References
    ----------
    A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano (1989), Heart Disease, UCI Machine Learning
    Repository, https://doi.org/10.24432/C52P4X (CC BY 4.0).

    Examples
    --------
    >>> from domainwise.datasets import load_heart
    >>> heart = load_heart()
    >>> heart.data.shape
    (920, 13)
    >>> sorted(set(heart.sample_domain.tolist()))
    ['cleveland', 'hungarian', 'switzerland', 'va']
    """
    check_arguments("load_heart", as_frame=as_frame)
    with needs_extra("load_heart", "data"):
        import pandas as pd
    table = pd.read_csv(Path(__file__).with_name("heart_hospitals.csv.gz"))
    data = table.drop(columns=["domain", "label"]).astype(float)
    target, domain = table["label"], table["domain"].rename("sample_domain")
    content = {"feature_names": list(data.columns), "DESCR": _DESCR}
    if as_frame:
        return Bunch(data=data, target=target, sample_domain=domain, frame=table, **content)
    # Fixed-width strings can be sorted, and are the same with every pandas version.
    domain = domain.to_numpy().astype(str)
    return Bunch(data=data.to_numpy(), target=target.to_numpy(), sample_domain=domain, **content)
