"""Text that came from outside: cleaned, measured and shortened. Sizes are bytes of UTF-8."""

from __future__ import annotations

import re

TOKEN_BYTES = 3
"""Bytes that count as a token: code takes three to four with the usual tokenizers."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_SPECIAL = re.compile(r"<(?=[|\uff5c])|<(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn)>)|\[(?=/?INST\])")
"""How the special tokens of chat templates begin. Servers take them out of a message's text too: one could end the message itself."""


def clean(text: str) -> str:
    """Return text without control characters and what UTF-8 cannot hold, and with a blank in whatever could be a special token."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()
    return _SPECIAL.sub(r"\g<0> ", _CONTROL.sub("", plain))


def one_line(text: str, n_chars: int = 300) -> str:
    """Return text as a short line, for reasons in records."""
    return " ".join(clean(text).split())[:n_chars]


def size(text: str) -> int:
    """Return the bytes of a text."""
    return len(text.encode())


def tokens_of(text: str) -> int:
    """Return the tokens that a text counts as."""
    return -(-size(text.encode("utf-8", "replace").decode()) // TOKEN_BYTES)


def shorten(text: str, n_bytes: int) -> str:
    """Return text within `n_bytes`: its start and its end with a note between them."""
    data = text.encode()
    if len(data) <= n_bytes:
        return text
    note = f"\n[... {len(data):,} bytes, shortened ...]\n"
    room = n_bytes - size(note)
    if room < 20:
        return data[: max(0, n_bytes)].decode(errors="ignore")
    head = room * 2 // 3
    return data[:head].decode(errors="ignore") + note + data[len(data) - (room - head) :].decode(errors="ignore")
