"""What a judge must answer, and the check of what it did answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from longrein_ruler.errors import JudgeError
from longrein_ruler.text import one_line


@frozen
class Scored:
    """The judge's word on one trace."""

    score: float
    """In [0, 1]."""
    explanation: str


def schema(ids: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of an answer: an object with a score for each id and nothing else."""
    texts = {"explanation": {"type": "string"}, "score": {"type": "number"}}
    entry = {"type": "object", "properties": texts, "required": list(texts), "additionalProperties": False}
    return {"type": "object", "properties": dict.fromkeys(ids, entry), "required": list(ids), "additionalProperties": False}


def read(text: str, ids: Sequence[str]) -> dict[str, Scored]:
    """Return the scores of an answer by id.

    Raises:
        JudgeError: "bad_answer"; it is no JSON, or does not hold one score in [0, 1] for each id and nothing else.
    """
    values = _json(text)
    missing, unknown = [i for i in ids if i not in values], [one_line(i, 40) for i in values if i not in ids]
    if missing or unknown:
        parts = [f"{word} {', '.join(names[:8])}" for word, names in (("without", missing), ("with unknown", unknown)) if names]
        raise _bad(f"scores {' and '.join(parts)}; the ids are {', '.join(ids)}")
    return {name: _scored(name, values[name]) for name in ids}


def _scored(name: str, entry: Any) -> Scored:
    score = entry.get("score") if isinstance(entry, Mapping) else None
    if isinstance(score, bool) or not isinstance(score, (int, float)):
        raise _bad(f"no number as score of {name}")
    if not 0 <= score <= 1:  # NaN, too
        raise _bad(f"score {one_line(str(score), 20)} of {name}; it must be in [0, 1]")
    return Scored(float(score), one_line(str(entry.get("explanation") or "")))


def _json(text: str) -> dict[str, Any]:
    # Without a schema some models wrap their answer in a fence or in words.
    start, end = text.find("{"), text.rfind("}")
    try:
        values = json.loads(text[start : end + 1], object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise _bad(f"no JSON object: {one_line(text, 80)!r}") from None
    assert isinstance(values, dict)  # it begins with a brace
    return values


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise _bad(f"{next(one_line(name, 40) for name in names if names.count(name) > 1)} twice")
    return values


def _bad(reason: str) -> JudgeError:
    return JudgeError("bad_answer", f"the judge answered {reason}", again=True)
