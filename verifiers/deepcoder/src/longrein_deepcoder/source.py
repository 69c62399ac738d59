"""Where rows come from: a local JSONL file or the hub. Rows are read one at a time."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from longrein.errors import MissingError, TaskError
from longrein_deepcoder.rows import Rejected

HUB_ID = "agentica-org/DeepCoder-Preview-Dataset"
_CHUNK = 1 << 20


class Source(Protocol):
    """Rows by index."""

    def __iter__(self) -> Iterator[Mapping[str, Any] | Rejected]:
        """Yield every row in order, or why it cannot be read."""
        ...

    def row(self, index: int) -> Mapping[str, Any]:
        """Return one row; IndexError when there is none."""
        ...


class JsonLines:
    """Rows of a local file, one JSON object a line.

    Args:
        path: the file.
        max_row_mb: longer lines are skipped without being held in memory.
    """

    def __init__(self, path: Path, max_row_mb: int) -> None:
        self.path, self._max_bytes, self._max_row_mb = path, max_row_mb << 20, max_row_mb
        self._offsets: array[int] | None = None
        if not path.is_file():
            raise TaskError(f"no such file of rows: {path}; give a JSONL file, or leave `path` out to load {HUB_ID}")

    def __iter__(self) -> Iterator[Mapping[str, Any] | Rejected]:
        with self.path.open("rb") as file:
            while line := file.readline(self._max_bytes + 1):
                if len(line) > self._max_bytes and not line.endswith(b"\n"):
                    del line
                    while (rest := file.readline(_CHUNK)) and not rest.endswith(b"\n"):
                        pass
                    yield Rejected("row too large", f"more than {self._max_row_mb} MB")
                elif line.strip():
                    yield _decode(line)

    def row(self, index: int) -> Mapping[str, Any]:
        """Return one row; IndexError when there is none."""
        if self._offsets is None:
            self._offsets = self._index()
        with self.path.open("rb") as file:
            file.seek(self._offsets[index])
            row = _decode(file.readline(self._max_bytes + 1))
        if isinstance(row, Rejected):
            raise row
        return row

    def _index(self) -> array[int]:
        offsets, offset = array("q"), 0
        with self.path.open("rb") as file:
            at_start = True
            while part := file.readline(_CHUNK):
                if at_start and (part.strip() or not part.endswith(b"\n")):
                    offsets.append(offset)
                offset += len(part)
                at_start = part.endswith(b"\n")
        return offsets


def _decode(line: bytes) -> Mapping[str, Any] | Rejected:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Rejected("row is not JSON", str(error))
    return row if isinstance(row, dict) else Rejected("row is not a table")


class Hub:
    """Rows of the data set on the hub, through `datasets` (memory-mapped)."""

    def __init__(self, config: str, split: str, max_row_mb: int) -> None:
        try:
            import datasets  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise MissingError(f"loading {HUB_ID} needs the datasets package: pip install datasets") from None
        self._rows = datasets.load_dataset(HUB_ID, config, split=split)
        self._max_bytes, self._max_row_mb = max_row_mb << 20, max_row_mb

    def __iter__(self) -> Iterator[Mapping[str, Any] | Rejected]:
        # Tables of arrow are views of the file: a row of 200 MB is measured without being loaded.
        for index, table in enumerate(self._rows.with_format("arrow").iter(batch_size=1)):
            if table.nbytes > self._max_bytes:
                yield Rejected("row too large", f"more than {self._max_row_mb} MB")
            else:
                yield self.row(index)

    def row(self, index: int) -> Mapping[str, Any]:
        """Return one row; IndexError when there is none."""
        return self._rows[index]  # type: ignore[no-any-return]
