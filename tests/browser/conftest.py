"""A browser for tests, where there is one."""

import importlib.util
import os
from pathlib import Path

import pytest


def load_driver():
    """The module beside this one; tests are no package."""
    path = Path(__file__).with_name("driver.py")
    spec = importlib.util.spec_from_file_location("browser_driver", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def driver():
    return load_driver()


@pytest.fixture(scope="session")
def browser(driver):
    """Path of a browser."""
    found = driver.find_browser()
    if found is None:
        reason = f"no browser on the PATH: looked for {', '.join(driver.NAMES)}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def view(driver, browser):
    """A browser that does what it is told."""
    with driver.Browser(browser) as opened:
        yield opened
