"""Turn a plain mapping (a config section) into a frozen attrs class, refusing what does not fit."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from longrein.errors import ConfigError, UnknownNameError

T = TypeVar("T")


@attrs.frozen
class NoOptions:
    """Options of a plugin that has none."""


def structure(cls: type[T], values: Mapping[str, Any], *, where: str) -> T:
    """Build `cls` from `values`.

    Args:
        cls: a frozen attrs class; nested attrs classes are structured from nested mappings.
        values: plain data, as TOML gives it.
        where: the section's name, for messages: "[train]".

    Raises:
        ConfigError: a value of the wrong type, a missing key, or a value that a validator refuses.
        UnknownNameError: a key that `cls` does not have; the nearest one is named.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} must be a table, got {values!r}")
    hints = typing.get_type_hints(cls)
    fields = {f.alias: f for f in attrs.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise UnknownNameError(f"key in {where}", key, fields)
    made = {key: _value(hints[fields[key].name], value, f"{where} {key}") for key, value in values.items()}
    missing = [k for k, f in fields.items() if f.default is attrs.NOTHING and k not in made]
    if missing:
        raise ConfigError(f"{where} needs {', '.join(missing)}")
    try:
        return cls(**made)
    except (ValueError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where}: {error}") from error


def _value(hint: Any, value: Any, where: str) -> Any:
    """Check `value` against a type hint; ints become floats where floats are asked for, strings become paths."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is typing.Literal:
        if value not in arguments:
            raise UnknownNameError(where, str(value), [str(a) for a in arguments])
        return value
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, value, where)
    if attrs.has(hint):
        return structure(hint, value, where=f"{where.rsplit(' ', 1)[0]}.{where.rsplit(' ', 1)[-1]}")
    if origin in (list, tuple) or (origin and issubclass(origin, typing.Sequence)):
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where} must be a list, got {value!r}")
        items = [_value(arguments[0] if arguments else Any, item, where) for item in value]
        return items if origin is list else tuple(items)
    if origin and issubclass(origin, typing.Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a table, got {value!r}")
        return {str(k): _value(arguments[1] if arguments else Any, v, f"{where}.{k}") for k, v in value.items()}
    if hint is float and type(value) is int:
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where} must be {_plain(hint)}, got {value!r}")
    return value


def _union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    errors = []
    for argument in arguments:
        if argument is type(None):
            continue
        try:
            return _value(argument, value, where)
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _plain(hint: Any) -> str:
    return {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )
