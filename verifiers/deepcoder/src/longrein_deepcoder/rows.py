"""Rows of the four configs brought into one normal form; what does not fit is rejected with a reason."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, get_args

from attrs import frozen

from longrein.errors import TaskError, UnknownNameError
from longrein_deepcoder.compare import MODES, Mode

ConfigName = Literal["primeintellect", "taco", "lcbv5", "codeforces"]
CONFIGS: tuple[ConfigName, ...] = get_args(ConfigName)

_TOLERANCE = re.compile(
    r"(absolute|relative)\s+(or\s+(absolute|relative)\s+)?(error|precision)|error\s+(of\s+)?(at\s+most|less\s+than)|10\^\{?-\d", re.I
)
_ANY_CASE = re.compile(r"letter\s+in\s+any\s+(case|register)|in\s+any\s+case\s*\(|case[- ]insensitive", re.I)
_SEVERAL = re.compile(
    r"(multiple|several|many|more\s+than\s+one)\s+((possible|valid|correct|optimal|such)\s+)*(answers?|solutions?)[^.]{0,80}\b(any|either|arbitrary)\b"
    r"|\b(print|output|return|report)\s+(any|either)\s+(of|one|valid|correct|such|suitable|possible|answer|solution|optimal)"
    r"|\b(print|output|return)\b[^.]{0,60}\bin\s+(any|arbitrary)\s+order",
    re.I,
)
_INTERACTIVE = re.compile(r"\b(this\s+is\s+an?\s+interactive|interactive\s+(problem|task)|the\s+interactor)\b", re.I)
_TYPE_COLUMN: Mapping[str, str] = {"primeintellect": "type", "lcbv5": "testtype"}
_INT_KEY = re.compile(r"0|-?[1-9]\d*")


class Rejected(TaskError):
    """A row that cannot be graded rightly. `reason` is a short word for counting, the message says more."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"row rejected: {reason}" + (f" ({detail})" if detail else ""))


@frozen
class Case:
    """One test. `input` is what is read (str) or the list of arguments; `output` what is printed (str) or the value."""

    input: Any
    output: Any

    @property
    def size(self) -> int:
        """Length of the input as text."""
        return len(self.input) if isinstance(self.input, str) else len(json.dumps(self.input))


@frozen
class NormalRow:
    """A row in normal form."""

    kind: Literal["stdin", "call"]
    fn_name: str | None
    cases: tuple[Case, ...]
    compare: Mode

    def hidden(self, cases: Sequence[Case]) -> dict[str, Any]:
        """Return the plain data that the verifier grades `cases` with."""
        return {
            "kind": self.kind,
            "fn_name": self.fn_name,
            "compare": self.compare,
            "cases": [{"input": case.input, "output": case.output} for case in cases],
        }


def normalise(config: ConfigName, row: Mapping[str, Any]) -> NormalRow:
    """Bring a row into normal form.

    Args:
        config: the config that the row is from.
        row: the columns; `tests` is a JSON string or its decoded value, missing columns may be None.

    Raises:
        Rejected: the row cannot be put into normal form.
    """
    if config not in CONFIGS:
        raise UnknownNameError("DeepCoder config", config, CONFIGS)
    problem = str(row.get("problem") or "")
    if _INTERACTIVE.search(problem):
        raise Rejected("interactive problem")
    if _SEVERAL.search(problem):
        raise Rejected("several answers are right")
    tests = _tests(row)
    kind, fn_name, pairs = _taco(tests) if isinstance(tests, dict) else _listed(tests, row, _TYPE_COLUMN.get(config))
    if not pairs:
        raise Rejected("no cases")
    cases = _calls(pairs) if kind == "call" else [_stdin(*pair) for pair in pairs]
    return NormalRow(kind, fn_name, tuple(cases), _compare(row, tests, kind))


def load_json(text: str) -> Any:
    """Decode JSON; whole numbers too long for int() become exact decimals."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 4000 else Decimal(digits))


def _tests(row: Mapping[str, Any]) -> Any:
    tests = row.get("tests")
    if isinstance(tests, str):
        try:
            tests = load_json(tests)
        except (ValueError, RecursionError) as error:
            raise Rejected("tests are not JSON", str(error)) from None
    if tests is None:
        raise Rejected("no tests column")
    if not isinstance(tests, (list, dict)):
        raise Rejected("tests are neither a list nor a table", type(tests).__name__)
    return tests


Pairs = list[tuple[Any, Any]]


def _taco(tests: Mapping[str, Any]) -> tuple[Literal["stdin", "call"], str | None, Pairs]:
    inputs, outputs, fn_name = tests.get("inputs"), tests.get("outputs"), tests.get("fn_name")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise Rejected("inputs or outputs are not a list")
    if len(inputs) != len(outputs):
        raise Rejected("unequal lengths", f"{len(inputs)} inputs, {len(outputs)} outputs")
    if not fn_name:
        return "stdin", None, list(zip(inputs, outputs, strict=True))
    return "call", _name(fn_name), list(zip(inputs, _unwrap(outputs), strict=True))


def _listed(tests: Sequence[Any], row: Mapping[str, Any], type_column: str | None) -> tuple[Literal["stdin", "call"], str | None, Pairs]:
    for test in tests:
        if not isinstance(test, dict) or "input" not in test or "output" not in test:
            raise Rejected("a case without input or output")
    types = {str(test.get(type_column)) if type_column else "stdin" for test in tests}
    pairs = [(test["input"], test["output"]) for test in tests]
    if len(types) > 1:
        raise Rejected("mixed types", ", ".join(sorted(types)))
    kind = types.pop() if types else "stdin"
    if kind in ("stdin", "stdin_stdout"):
        return "stdin", None, pairs
    if kind == "functional":
        return "call", _name(_metadata(row).get("func_name")), [(_json_lines(i), _json_value(o)) for i, o in pairs]
    if kind == "function_call":
        names = {str(test.get("fn_name") or "") for test in tests}
        if len(names) > 1:
            raise Rejected("several function names", ", ".join(sorted(names)))
        return "call", _name(names.pop()), list(zip((i for i, _ in pairs), _unwrap([o for _, o in pairs]), strict=True))
    raise Rejected("unknown type", kind)


def _metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata column, which may be a table, JSON or a Python literal."""
    metadata = row.get("metadata")
    if isinstance(metadata, str):
        for read in (json.loads, ast.literal_eval):
            try:
                metadata = read(metadata)
                break
            except (ValueError, SyntaxError):
                continue
    return metadata if isinstance(metadata, dict) else {}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise Rejected("no function name")
    name = name.removeprefix("Solution.").removeprefix("Solution().")
    if not name.isidentifier():
        raise Rejected("function name is not an identifier", repr(name)[:80])
    return str(name)


def _json_lines(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    return [_json_value(line) for line in text.split("\n") if line.strip()]


def _json_value(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return load_json(text)
    except (ValueError, RecursionError) as error:
        raise Rejected("a call case is not JSON", str(error)) from None


def _unwrap(outputs: Sequence[Any]) -> list[Any]:
    """Take the values out of their one-element lists; a row in which any output has another shape was never wrapped."""
    wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    return [output[0] for output in outputs] if wrapped else list(outputs)


def _calls(pairs: Pairs) -> list[Case]:
    for arguments, _ in pairs:
        if not isinstance(arguments, list):
            raise Rejected("arguments are not a list", type(arguments).__name__)
    return [Case([_int_keys(argument) for argument in arguments], output) for arguments, output in pairs]


def _int_keys(value: Any) -> Any:
    """Give tables whose keys are all whole numbers their numbers back: JSON has made them strings."""
    if isinstance(value, list):
        return [_int_keys(item) for item in value]
    if isinstance(value, dict):
        numbers = bool(value) and all(_INT_KEY.fullmatch(key) for key in value)
        return {int(key) if numbers else key: _int_keys(item) for key, item in value.items()}
    return int(value) if isinstance(value, Decimal) else value


def _stdin(given: Any, expected: Any) -> Case:
    return Case(_text(given, "input"), _text(expected, "output"))


def _text(value: Any, what: str) -> str:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise Rejected(f"an {what} is not text", type(value).__name__)
    return value


def _compare(row: Mapping[str, Any], tests: Any, kind: str) -> Mode:
    """Return the mode that the row states, else what its statement grants (an error, letters in any case), else `lines`."""
    stated = row.get("compare") or _metadata(row).get("compare") or (tests.get("compare") if isinstance(tests, dict) else None)
    if stated is not None:
        if stated not in MODES:
            raise Rejected("unknown compare mode", str(stated))
        return stated  # type: ignore[no-any-return]
    problem = str(row.get("problem") or "")
    if _TOLERANCE.search(problem):
        return "float"
    return "icase" if kind == "stdin" and _ANY_CASE.search(problem) else "lines"
