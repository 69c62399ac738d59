"""Values of a page in compressed blocks: equal values are kept once, and a block is unpacked when something in it is looked at."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable
from typing import Any

BLOCK = 1 << 18
"""Characters of JSON in a block: one takes a few milliseconds to unpack."""


class Store:
    """Writes values as they come and gives each a number.

    A block is a JSON array, compressed with raw deflate, in base64: nothing in a value can end the page's script or markup.

    Args:
        write: takes the base64 text of each whole block.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._numbers: dict[bytes, int] = {}
        self._block: list[str] = []
        self._size = 0
        self.firsts: list[int] = []
        """Number of the first value of each block."""

    def put(self, value: Any) -> int:
        """Keep plain data and return its number; equal data has the same one."""
        text = to_json(value)
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self._numbers)
            if not self._block:
                self.firsts.append(number)
            self._block.append(text)
            self._size += len(text)
            if self._size >= BLOCK:
                self.flush()
        return number

    def flush(self) -> None:
        """Write the block that is under way."""
        if self._block:
            self._write(pack(f"[{','.join(self._block)}]"))
            self._block, self._size = [], 0


def to_json(value: Any) -> str:
    """Return compact JSON in ASCII: also lone surrogates survive."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def pack(text: str) -> str:
    """Return ASCII text compressed with raw deflate, in base64."""
    squeeze = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(squeeze.compress(text.encode("ascii")) + squeeze.flush()).decode("ascii")
