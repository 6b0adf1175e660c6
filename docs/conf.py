"""Sphinx configuration: ``make docs`` builds the documentation in ``docs/_build/html``.

Neither the build nor the pages need a network: formulas are MathML, fonts and scripts are included,
and the search does not need a server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS / "_tools"))

# Gallery workers use one BLAS thread each, and figures are drawn without a display.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "agg")

import domainwise  # noqa: E402

project = "domainwise"
author = "The domainwise developers"
copyright = author
version = release = domainwise.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "pages",
    "outputs",
]
root_doc = "index"
exclude_patterns = ["_build", "_tools", "_templates", "gallery/*.ipynb", "gallery/*.py"]
templates_path = ["_templates"]
# Single backticks, such as `landmarks` and `C=1`, are code and not cross-references.
default_role = "code"
# sphinx_gallery_conf contains functions, which Sphinx cannot compare with those in the last build.
suppress_warnings = ["config.cache"]

# Markdown ----------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# Docstrings --------------------------------------------------------------------------------------

autodoc_typehints = "none"  # docstrings describe types better than annotations such as `Any`
autosummary_generate = True
numpydoc_show_class_members = False  # _templates/autosummary/class.rst lists them
numpydoc_class_members_toctree = False
toc_object_entries_show_parents = "hide"

# Copy buttons ------------------------------------------------------------------------------------

# Outputs have no button, and prompts are not copied.
copybutton_selector = "div.highlight pre:not(.output pre, .sphx-glr-script-out pre)"
copybutton_exclude = ".linenos, .gp, .go"

# The gallery -------------------------------------------------------------------------------------

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_",
    "ignore_pattern": r"__init__",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("domainwise",),
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "reset_modules": ("look.reset",),
    "parallel": 2,
    "plot_gallery": "True",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "thumbnail_size": (400, 280),
}

# The pages ---------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = f"domainwise {version}"
html_favicon = "_static/mark.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"
html_context = {"default_mode": "auto"}  # without it, the theme logs an error in the console
html_theme_options = {
    "logo": {
        "text": "domainwise",
        "image_light": "_static/mark.svg",
        "image_dark": "_static/mark.svg",
    },
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    # Every color has a contrast of at least 6:1 with the background of code blocks.
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars: dict[str, list[str]] = {"index": [], "changelog": [], "cite": [], "theory": []}
