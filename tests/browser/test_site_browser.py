"""Open the built site in a real browser, from the disk: silent, no wider than a phone."""

import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from driver import NAMES, Browser, find_browser

pytestmark = pytest.mark.browser

SITE = Path(__file__).resolve().parents[2] / "docs" / "_build" / "html"


@pytest.fixture(scope="module")
def browser():
    path = find_browser()
    if path is None:
        reason = f"no browser on the PATH: looked for {', '.join(NAMES)}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with Browser(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def site():
    if not (SITE / "index.html").is_file():
        pytest.skip("there is no site in docs/_build/html: run make docs")
    return SITE


def pages_of(site):
    """Every page that was written by hand or by a script, and every fifth of the reference."""
    pages = [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]
    reference = [page for page in pages if page.parent.name == "reference"]
    return [page for page in pages if page not in reference] + reference[::5]


def complaints(browser):
    """Warnings, errors and exceptions; that the theme notes its colours is none."""
    return [message for message in browser.messages if message.get("type") not in ("log", "debug")]


def wait_for(browser, script, seconds=60):
    """The value of an expression, as soon as it is true."""
    end, value = time.monotonic() + seconds, None
    while not value:
        assert time.monotonic() < end, f"{script} stayed {value!r}"
        time.sleep(0.1)
        with contextlib.suppress(RuntimeError):  # the page is being left for another
            value = browser.run(script)
    return value


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_every_page_is_silent_and_fits_the_window(browser, site, width, dark):
    wrong = []
    pages = pages_of(site)
    assert len(pages) > 45
    for page in pages:
        browser.messages.clear()
        browser.open(page, width=width, dark=dark)
        name = page.relative_to(site)
        wide = browser.run("document.documentElement.scrollWidth")
        blank = browser.run(
            "[...document.images].filter(i => i.complete && !i.naturalWidth).length"
        )
        if complaints(browser):
            wrong.append(f"{name}: {complaints(browser)[0]}")
        if wide > width:
            wrong.append(f"{name}: {wide} px wide")
        if blank:
            wrong.append(f"{name}: {blank} pictures are not there")
    assert not wrong, "\n".join(wrong)


def test_a_page_with_messages_or_too_wide_is_detected(browser, tmp_path):
    """Otherwise the test above could pass for the wrong reason."""
    page = tmp_path / "bad.html"
    page.write_text('<p style="width: 900px">wide</p><script>console.error("oh no")</script>')
    browser.messages.clear()
    browser.open(page, width=390)
    assert browser.run("document.documentElement.scrollWidth") > 390
    assert "oh no" in str(complaints(browser))


def test_formulas_are_drawn_by_the_browser_itself(browser, site):
    browser.open(site / "theory.html", width=1280)
    formulas = "[...document.querySelectorAll('div.formula math')]"
    shown = browser.run(f"{formulas}.map(m => m.getBoundingClientRect().width)")
    assert len(shown) >= 10
    assert min(shown) > 50


@pytest.mark.parametrize("word", ["landmarks", "DomainContext"])
def test_a_word_typed_into_the_search_is_found_without_a_server(browser, site, word):
    browser.messages.clear()
    browser.open(site / "index.html", width=1280)
    browser.run("document.querySelector('.search-button__button').click()")
    wait_for(browser, "document.activeElement.matches('input[type=search]')")
    browser.ask("Input.insertText", text=word)
    for kind in ("keyDown", "keyUp"):
        browser.ask(
            "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r",
            windowsVirtualKeyCode=13,
        )  # fmt: skip
    wait_for(browser, "location.pathname.endsWith('search.html') && document.readyState")
    # Results are listed one by one, so that the first look may see only some of them.
    titles = "[...document.querySelectorAll('#search-results li a')].map(a => a.textContent)"
    wait_for(browser, f"{titles}.some(t => t.toLowerCase().includes('{word.lower()}'))")
    assert complaints(browser) == []
