"""scikit-learn's estimator checks; what is expected to fail stands in one table, with reasons."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from domainwise import InvariantFeatures, InvariantKernel, InvariantSVC, InvariantSVR

ESTIMATORS = [
    InvariantKernel(),
    InvariantFeatures(),
    InvariantFeatures(feature_map="fourier"),
    InvariantSVC(),
    InvariantSVC(solver="fast"),
    InvariantSVR(),
    InvariantSVR(solver="fast"),
]
#: Class name to check name to reason. Nothing fails.
EXPECTED_FAILURES: dict[str, dict[str, str]] = {}


@parametrize_with_checks(
    ESTIMATORS, expected_failed_checks=lambda e: EXPECTED_FAILURES.get(type(e).__name__, {})
)
def test_estimator_checks(estimator, check):
    check(estimator)
