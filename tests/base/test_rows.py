"""X that is not a table of numbers is an error, and is not converted to one.

``tests/test_common.py`` tests that estimators use this check.
"""

import pytest
from sklearn.base import BaseEstimator

from domainwise.base.inputs import check_is_table, validate_rows


def test_inputs_that_are_not_numeric_tables_are_errors(hostile_rows):
    for rows, words, _ in hostile_rows.values():
        with pytest.raises((ValueError, TypeError), match=words):
            validate_rows(BaseEstimator(), rows)


def test_inputs_without_rows_are_errors(hostile_rows):
    for case, (rows, words, may_mean_something) in hostile_rows.items():
        if may_mean_something or case == "number":
            check_is_table(rows)
        else:
            with pytest.raises((ValueError, TypeError), match=words):
                check_is_table(rows)
