"""The API reference has every public name, once."""

from importlib.util import find_spec

import names
import pytest

LISTED = [name for group in names.groups() for name in group.names]


@pytest.mark.parametrize("module", [name for name in names.MODULES if find_spec(name)])
def test_every_name_that_a_public_module_offers_is_in_the_reference(module):
    documented = {id(names.resolve(name)) for name in LISTED}
    offered = names.public_names(module)
    absent = [name for name in offered if id(names.resolve(f"{module}.{name}")) not in documented]
    assert offered
    assert absent == []


def test_no_name_is_in_the_reference_twice():
    assert len(LISTED) == len(set(LISTED)) == len({id(names.resolve(name)) for name in LISTED})


def test_a_class_shows_its_own_methods_and_names_those_of_scikit_learn():
    assert names.own_members("domainwise.DCM") == ["fit_transform", "fit", "transform", "to"]
    assert "set_output" in names.inherited_methods("domainwise.DCM")
