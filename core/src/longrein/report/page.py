"""The page itself: a shell with its script and style inside, and a policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

SCRIPTS = (
    "store.js", "text.js", "state.js", "charts.js", "curves.js", "overview.js", "tables.js",
    "messages.js", "tokens.js", "trace.js", "keys.js", "main.js",
)  # fmt: skip
"""In the order in which they stand in the page; together they are one module."""
STYLES = ("base.css", "overview.css", "trace.css")
MARK = "<!-- blocks -->"


def shell(title: str) -> tuple[str, str]:
    """Return the page before and after its blocks of data.

    The content security policy names the one script and the one style by their hash and allows nothing else: no request can
    leave the page, and text that got into the markup could not run.

    Args:
        title: plain text; escaped here.
    """
    from jinja2 import Environment

    place = files("longrein.report") / "page"
    script = "\n".join((place / name).read_text(encoding="utf-8") for name in SCRIPTS)
    style = "\n".join((place / name).read_text(encoding="utf-8") for name in STYLES)
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    template = Environment(autoescape=True).from_string((place / "page.html.j2").read_text(encoding="utf-8"))
    head, tail = template.render(title=title, policy=policy, script=script, style=style, mark=MARK).split(MARK)
    return head, tail


def block(packed: str, *, name: str = "block") -> str:
    """Return packed values as an element that the browser keeps as text."""
    return f'<script type="text/plain" class="{name}">{packed}</script>\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
