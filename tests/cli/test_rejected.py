"""`longrein tasks show deepcoder:... --rejected`: rows that are no task, by reason, for each config and its awkward rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli

COLUMNS = ("problem", "solutions", "starter_code", "tests", "metadata")


def row(tests: Any, **columns: Any) -> dict[str, Any]:
    """Return a row with the null columns that concatenated configs have."""
    return {**dict.fromkeys(COLUMNS), "problem": "x", "tests": tests, **columns}


def listed(kind: str, **test: Any) -> str:
    return json.dumps([{"type": kind, "input": "1", "output": "1", **test}])


def both(config: str) -> tuple[list[dict[str, Any]], dict[str, list[int]]]:
    """Return awkward rows of a config, and the indices of those that are rejected, by reason."""
    stdin = [{"input": "1\n", "output": "1\n", "testtype": "stdin"}]
    call = [{"input": "[1]\n\n2", "output": "[3]", "testtype": "functional"}]
    rows = {
        "codeforces": [
            (row(json.dumps(stdin)), ""),
            (row(stdin, problem="If there are multiple answers, print any."), "several answers are right"),
            (row(stdin, problem="This is an interactive problem."), "interactive problem"),
            (row([]), "no cases"),
        ],
        "lcbv5": [
            (row(call, metadata='{"func_name": "f"}', starter_code="class Solution:\n    def f(self, xs, k): "), ""),
            (row(json.dumps(call), metadata={"func_name": "f"}), ""),
            (row(stdin, metadata={"func_name": None}), ""),
            (row(call, metadata={"func_name": None}), "no function name"),
            (row([*call, *stdin], metadata={"func_name": "f"}), "mixed types"),
            (row([{**call[0], "output": "3 4"}], metadata={"func_name": "f"}), "a call case is not JSON"),
            (row([{**stdin[0], "testtype": None}]), "unknown type"),
        ],
        "primeintellect": [
            (row(listed("stdin_stdout")), ""),
            (row(json.loads(listed("stdin_stdout"))), ""),
            (row(listed("function_call", fn_name="f", input=[1], output=[2])), ""),
            (row(listed("function_call", fn_name="f", input=[1], output=2)), ""),
            (row(listed("function_call", fn_name="f", input="1", output=[2])), "arguments are not a list"),
            (row(listed("function_call", input=[1], output=[2])), "no function name"),
            (row(listed("stdin_stdout", output=None)), "an output is not text"),
            (row("not json"), "tests are not JSON"),
            (row(None), "no tests column"),
        ],
        "taco": [
            (row({"inputs": [["1", "2"]], "outputs": [["3", ""]]}), ""),
            (row(json.dumps({"inputs": ["1"], "outputs": ["1"], "fn_name": None})), ""),
            (row({"fn_name": "f", "inputs": [[{"1": 2}]], "outputs": [[3]]}), ""),
            (row({"inputs": ["1"], "outputs": []}), "unequal lengths"),
            (row({"fn_name": "a b", "inputs": [[1]], "outputs": [[1]]}), "function name is not an identifier"),
        ],
    }[config]
    rejected: dict[str, list[int]] = {}
    for index, (_, reason) in enumerate(rows):
        if reason:
            rejected.setdefault(reason, []).append(index)
    return [made for made, _ in rows], rejected


@pytest.mark.parametrize("config", ["codeforces", "lcbv5", "primeintellect", "taco"])
def test_every_row_is_a_task_or_is_listed_with_its_reason(
    longrein: Cli, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows, rejected = both(config)
    Path("rows.jsonl").write_text("".join(json.dumps(made) + "\n" for made in rows))
    name = f"deepcoder:{config}"
    done = longrein("tasks", "show", name, "--set", "path=rows.jsonl", "--rejected", "--json")
    assert json.loads(done.out) == {why: [f"{config}-{index}" for index in found] for why, found in rejected.items()}
    n_rejected = sum(map(len, rejected.values()))
    assert f"{len(rows) - n_rejected} tasks, {n_rejected} rejected" in done.err
    assert ("evaluation only" in done.err) == (config == "codeforces")
    tasks = json.loads(longrein("tasks", "show", name, "--set", "path=rows.jsonl", "--json").out)
    assert [task["id"] for task in tasks] == [
        f"{config}-{i}" for i in range(len(rows)) if not any(i in found for found in rejected.values())
    ]
    for task in tasks:
        if task["metadata"]["kind"] == "call":
            assert "`f`" in task["public"]["prompt"], "the function's name is said"


def test_a_table_shows_some_ids_and_says_how_many_there_are(longrein: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("".join(json.dumps(row("{")) + "\n" for _ in range(25)))
    shown = longrein("tasks", "show", "deepcoder:taco", "--set", "path=rows.jsonl", "--rejected").out.splitlines()[1]
    assert shown.split()[:5] == ["tests", "are", "not", "JSON", "25"]
    assert "taco-19 and 5 more (--json lists all)" in shown
