"""Sphinx configuration of the documentation site (`make site`).

The source folder is the repository, so links between pages, the README and source files are the
same as on GitHub. The navigation is made from the folders: a new page needs no entry here.
"""  # noqa: INP001 - a configuration file, not a module

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

project = "nextfire"
html_title = "nextfire"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md", "examples/*.md"]
exclude_patterns = [
    *(".*", "build", "cdk.out", "site"),
    *("benchmarks", "cli", "functions", "infra", "layers", "tests"),
]

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
mermaid_height = "auto"
mermaid_fullscreen_button = "+"
# Some examples are parts of JSON documents, or shorten values with an ellipsis.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

DECISIONS = "docs/internals/decisions"
SECTIONS = {
    "Use": [
        *("docs/tutorial.md", "docs/tour.md", "examples/README.md"),
        *("docs/guide/schedules.md", "docs/guide/scripts.md", "docs/guide/callbacks.md"),
        *("docs/guide/aws-calls.md", "docs/guide/sequences.md", "docs/guide/policies.md"),
        *("docs/guide/runs.md", "docs/guide/operating-jobs.md", "docs/guide/*.md"),
    ],
    "Operate": [
        *("docs/operate/embedded.md", "docs/operate/deploy.md", "docs/operate/identity.md"),
        *("docs/operate/security.md", "docs/operate/audit.md", "docs/operate/*.md"),
    ],
    "Reference": ["docs/reference/*.md"],
    "Internals": [
        *("docs/internals/architecture.md", "docs/internals/protocol.md"),
        *("docs/internals/tables.md", "docs/internals/*.md", f"{DECISIONS}/README.md"),
        "docs/defects.md",
    ],
    "Project": ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/*.md"],
}
"""The navigation: captions, and the pages below each as patterns, in this order."""


def toctrees(sections: dict[str, list[str]], page: str) -> str:
    """The hidden tables of contents of *page*, one for each section. Each page is listed once."""
    above = "../" * page.count("/")
    listed: set[str] = set()
    parts = []
    for caption, patterns in sections.items():
        found = [
            str(path.relative_to(ROOT).with_suffix(""))
            for pattern in patterns
            for path in sorted(ROOT.glob(pattern))
        ]
        names = [name for name in dict.fromkeys(found) if name not in listed]
        listed.update(names)
        links = "\n".join(above + name for name in names)
        parts.append(f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{links}\n```\n")
    return "".join(parts)


def add_navigation(_: Any, page: str, source: list[str]) -> None:  # noqa: ANN401
    """Append the tables of contents, which GitHub would show as text."""
    if page == root_doc:
        source[0] += toctrees(SECTIONS, page)
    elif page == f"{DECISIONS}/README":
        source[0] += toctrees({"Decisions": [f"{DECISIONS}/0*.md"]}, page)


def add_index(app: Any, error: Exception | None) -> None:  # noqa: ANN401
    """Web servers look for index.html."""
    if error is None:
        built = Path(app.outdir)
        shutil.copy(built / "README.html", built / "index.html")


def setup(app: Any) -> None:  # noqa: ANN401
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
