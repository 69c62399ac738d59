"""Whether a reply acts on the workspace or only talks."""

from __future__ import annotations

import re

from longrein.model import ModelCall

_BLOCK = re.compile(r"^\s*(```|~~~|<{5,9} ?SEARCH|\*\*\* Begin Patch|<(?!think)[a-zA-Z][\w:-]*[\s>/])", re.MULTILINE)
"""Starts of what a program reads out of prose: fences, SEARCH/REPLACE and patch blocks, XML elements on a line of their own."""


def acts(call: ModelCall) -> bool:
    """Return whether a reply calls a tool or, where the request offered none, holds a block that a program can read."""
    if call.tools_key is not None or call.reply.get("tool_calls"):
        return bool(call.reply.get("tool_calls"))
    content = call.reply.get("content")
    return isinstance(content, str) and bool(_BLOCK.search(content))
