"""Data model to JSON and back, with cattrs; `schema_version` guards what is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import cattrs
from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.json import make_converter

from longrein.errors import RecordError
from longrein.model import PublicTask, Rollout, SessionResult

SCHEMA_VERSION = 1


PLAIN = (
    Sequence[int],
    Sequence[float],
    Mapping[str, Any],
    dict[str, Any],
    tuple[Mapping[str, Any], ...],
    Mapping[str, Sequence[Mapping[str, Any]]],
)
"""Field types that hold plain data already: they pass as they are, which keeps long token lists cheap."""


def _converter() -> cattrs.Converter:
    converter = make_converter(omit_if_default=True)
    converter.register_structure_hook_func(PLAIN.__contains__, _structure_plain)
    converter.register_unstructure_hook_func(PLAIN.__contains__, lambda value: value)
    converter.register_unstructure_hook(
        SessionResult, make_dict_unstructure_fn(SessionResult, converter, _cattrs_omit_if_default=True, workspace=override(omit=True))
    )
    return converter


def _structure_plain(value: Any, hint: Any) -> Any:
    return tuple(value) if getattr(hint, "__origin__", None) is tuple else value


def rollout_to_json(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as plain data, without the workspace (it is kept as an archive beside the record)."""
    return {"schema_version": SCHEMA_VERSION, **_CONVERTER.unstructure(rollout)}


def rollout_from_json(values: Mapping[str, Any]) -> Rollout:
    """Return the rollout of a record line.

    Raises:
        RecordError: an unknown schema version or a shape that is not a rollout's.
    """
    check_version(values)
    try:
        return _CONVERTER.structure({k: v for k, v in values.items() if k != "schema_version"}, Rollout)
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"not a rollout record: {error}") from error


def public_from_json(values: Mapping[str, Any]) -> PublicTask:
    """Return what agents are given of a task.

    Raises:
        RecordError: the shape is not a task's.
    """
    try:
        return _CONVERTER.structure(values, PublicTask)
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"not a task record: {error}") from error


def check_version(values: Any) -> None:
    """Refuse a record of another schema version.

    Raises:
        RecordError: it is not of this longrein's version.
    """
    version = values.get("schema_version") if isinstance(values, dict) else None
    if version != SCHEMA_VERSION:
        raise RecordError(f"record has schema_version {version!r}, this longrein reads {SCHEMA_VERSION}")


def plain(value: Any) -> Any:
    """Return attrs data as JSON-ready plain data (paths and tuples included)."""
    if attrs.has(type(value)):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


_CONVERTER = _converter()
