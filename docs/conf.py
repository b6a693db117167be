"""Sphinx builds the site from the repository's root: sphinx-build -c docs . OUTPUT, or ./sr docs.

So pages may link to any file of the repository, and the links work where the sources are browsed too.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
# !python in a notebook is this interpreter
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

from soft_reasoning import __version__  # noqa: E402

project = "soft_reasoning"
author = copyright = "The soft_reasoning developers"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "experiments/README.md",
    "experiments/paper/README.md",
    "experiments/results/*.md",
    "soft_reasoning/ARCHITECTURE.md",
    "soft_reasoning/demo/model/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [
    ".*",
    "docs/_build",
    "runs",
    "multirun",
    "outputs",
    "tests",
]

html_theme = "furo"
html_title = f"soft_reasoning {version}"
html_extra_path = ["llms.txt"]  # for language models, at the site's root
html_additional_pages = {"index": "redirect.html"}  # the site's own address leads to docs/index.html
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

nb_execution_mode = "force"  # pages show what the notebooks print today
nb_execution_in_temp = True
nb_execution_show_tb = True
nb_execution_timeout = 1200
nb_execution_raise_on_error = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_use_rtype = False

# IPython takes shell commands of several lines, its lexer does not.
suppress_warnings = ["misc.highlighting_failure"]
