"""What was paid for: answers by content, and a ledger of every request that bounds calls and cost."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longrein_ruler.errors import JudgeError
from longrein_ruler.options import RulerOptions

SCHEMA_VERSION = 1


class Store:
    """A folder of answers, each in a file named by what was asked, and `spent.jsonl`.

    Several runs may use one folder at once; its caps are for all of them together.
    """

    def __init__(self, options: RulerOptions) -> None:
        self._options, self._folder = options, options.cache
        self._ledger = self._folder / "spent.jsonl"
        self._read_to, self._calls, self._cost = 0, 0, 0.0
        self._calls_ahead, self._cost_ahead = 0, 0.0

    def answer(self, key: str) -> Mapping[str, Any] | None:
        """Return what was kept under a key; None when there is nothing, or it is damaged."""
        try:
            values = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return values if isinstance(values, dict) and values.get("schema_version") == SCHEMA_VERSION else None

    def keep(self, key: str, values: Mapping[str, Any]) -> None:
        """Keep an answer; a reader finds all of it or nothing."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own: another run may write the same answer now.
        descriptor, partial = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"schema_version": SCHEMA_VERSION, **values}, file)
        Path(partial).replace(path)

    @contextmanager
    def request(self, cost_ahead: float) -> Iterator[Callable[[int, int], float]]:
        """Allow one request and enter it in the ledger.

        Args:
            cost_ahead: what its prompt will cost.

        Yields:
            A function that takes the tokens of prompt and reply, and returns their cost.

        Raises:
            JudgeError: "capped"; nothing may be sent.
        """
        self._check(cost_ahead)
        self._calls_ahead += 1
        self._cost_ahead += cost_ahead
        tokens, sent = [0, 0], True

        def costs(tokens_in: int, tokens_out: int) -> float:
            tokens[:] = tokens_in, tokens_out
            return self.price(tokens_in, tokens_out)

        try:
            yield costs
        except JudgeError as error:  # what an endpoint refuses is not paid for; a reply that never came may be
            sent = error.kind in ("timeout", "bad_answer")
            raise
        finally:
            self._calls_ahead -= 1
            self._cost_ahead -= cost_ahead
            if sent:
                self._enter(*tokens)

    def price(self, tokens_in: int, tokens_out: int) -> float:
        """Return what tokens cost."""
        return (tokens_in * self._options.price_in + tokens_out * self._options.price_out) / 1e6

    def _check(self, cost_ahead: float) -> None:
        self._update()
        options, help_ = self._options, f"in {self._ledger}; raise it, or give this run a `cache` of its own"
        if options.max_calls is not None and self._calls + self._calls_ahead >= options.max_calls:
            raise JudgeError("capped", f"max_calls = {options.max_calls} is reached: {self._calls} calls {help_}")
        if options.max_cost is not None and self._cost + self._cost_ahead + cost_ahead > options.max_cost:
            raise JudgeError("capped", f"max_cost = {options.max_cost:g} would be passed: {self._cost:.4f} spent {help_}")

    def _enter(self, tokens_in: int, tokens_out: int) -> None:
        line = {"model": self._options.model, "in": tokens_in, "out": tokens_out, "cost": self.price(tokens_in, tokens_out)}
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._ledger.open("ab") as file:  # one write at the end of the file: lines of several runs stay whole
            file.write(json.dumps(line).encode() + b"\n")

    def _update(self) -> None:
        """Read what was entered since the last look, by this run or another one."""
        if not self._ledger.is_file():
            return
        with self._ledger.open("rb") as file:
            file.seek(self._read_to)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read_to += len(line)
                self._calls += 1
                try:
                    self._cost += float(json.loads(line)["cost"])
                except (ValueError, LookupError, TypeError):
                    continue

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
