"""Open the report in a real browser: it must load, show its tables and figures, and be silent."""

import html
import re
import subprocess
from functools import partial

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(made_up_results):
    from reproduction.report import publish

    return publish(made_up_results(tables=("synthetic", "gvhd")))[1]


@pytest.fixture
def run_browser(driver, browser, tmp_path):
    return partial(_run_browser, driver, browser, tmp_path)


def _run_browser(driver, browser, tmp_path, *arguments):
    return subprocess.run(
        [browser, *driver.FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )


def test_the_report_loads_without_console_messages(run_browser, page):
    done = run_browser("--enable-logging=stderr", "--v=0", "--dump-dom", page.as_uri())
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    assert done.stdout.count("<table") == 15  # the summary, and one for each case and setting
    assert len(re.findall(r"<figure\b", done.stdout)) == 34
    assert "Do we get the paper's results?" in html.unescape(done.stdout)


def test_a_console_error_would_be_noticed(run_browser, tmp_path):
    """Otherwise the test above could pass for the wrong reason."""
    page = tmp_path / "bad.html"
    page.write_text("<script>console.error('oh no')</script>")
    done = run_browser("--enable-logging=stderr", "--v=0", "--dump-dom", page.as_uri())
    assert "oh no" in done.stderr


@pytest.mark.parametrize(("name", "width"), [("desktop", 1280), ("phone", 500)])
def test_the_report_can_be_drawn(run_browser, page, tmp_path, name, width):
    picture = tmp_path / f"{name}.png"
    run_browser(f"--window-size={width},2400", f"--screenshot={picture}", page.as_uri())
    from matplotlib.image import imread

    pixels = imread(picture)
    assert pixels.shape[:2] == (2400, width)
    # Something is drawn all the way down, and nothing is wider than the window.
    assert all(part.std() > 0.01 for part in (pixels[:800], pixels[800:1600], pixels[1600:]))
