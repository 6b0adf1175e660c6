"""The API reference has every public name, once."""

import inspect
import re
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import names
import pytest

ROOT = Path(__file__).resolve().parents[2]

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


def test_every_class_links_a_page_of_the_guide_that_explains_it():
    linked = [name for page in names.GUIDE.values() for name in page.split()]
    assert len(linked) == len(set(linked))
    assert set(linked) <= {name.rpartition(".")[2] for name in LISTED}
    classes = [name for name in LISTED if isinstance(names.resolve(name), type)]
    assert [name for name in classes if names.guide_page(name) is None] == []
    assert all((ROOT / "docs" / f"{page}.md").is_file() for page in names.GUIDE)


# Arguments that texts speak of --------------------------------------------------------------------

TEXTS = [
    path
    for path in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
    if not {"_build", "benchmarks", "reference"} & set(path.relative_to(ROOT).parts[1:-1])
]
#: Of other libraries, and attributes that are set.
OTHERS = {"cores", "processes", "memory", "keep_default_na"}


def known_arguments():
    """Names of all arguments of public functions, classes and their methods."""
    known = set(OTHERS)
    for name in [*LISTED, "sklearn.svm.SVC", "sklearn.set_config"]:
        public = names.resolve(name)
        bases = public.__mro__ if isinstance(public, type) else ()
        methods = [
            getattr(method, "fn", getattr(method, "__func__", method))  # available_if, classmethod
            for base in bases
            if base is public or base.__module__.startswith("domainwise")
            for method in vars(base).values()
        ]
        for function in [public, *methods]:
            with suppress(TypeError, ValueError):
                known |= set(inspect.signature(function).parameters)
    return known


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_arguments_that_a_text_names_are_spelt_as_they_are(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    spoken = {
        argument
        for code in re.findall(r"`([^`\n]+)`", text)
        for argument in re.findall(r"(?<![-\w./$])([a-z]\w*)=(?!=)", code)
    }
    assert spoken - known_arguments() == set()
