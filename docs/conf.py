"""The site of the documentation, which `make docs` builds with Sphinx from README and `docs/`."""

import re
import shutil

from sphinx.application import Sphinx

project = html_title = "placement"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md"]  # of the repository, so that links work as on GitHub
exclude_patterns = [".venv", "build", "runs"]
html_theme = "furo"  # loads no fonts or scripts from other places
html_copy_source = False
myst_heading_anchors = 4  # the anchors of GitHub


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds to README the groups of links in its section "Documentation" as the navigation."""
    if page == root_doc:
        section = source[0].partition("## Documentation\n")[2]
        for group, links in re.findall(r"^(\w+): ([^:]*?)\.$", section, re.MULTILINE):
            pages = "\n".join(re.findall(r"\((.*?)\)", links))
            source[0] += f"\n```{{toctree}}\n:caption: {group}\n:hidden:\n\n{pages}\n```\n"


def copy_home(app: Sphinx, error: Exception | None) -> None:
    """Makes README the first page, index.html."""
    if error is None:
        shutil.copy(app.outdir / "README.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", copy_home)
