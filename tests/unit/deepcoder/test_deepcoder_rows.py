"""Rows of the four configs: normal form, rejection, public and hidden parts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longrein.errors import TaskError
from longrein_deepcoder.compare import same
from longrein_deepcoder.prompt import statement
from longrein_deepcoder.rows import Case, Rejected, normalise
from longrein_deepcoder.taskset import DeepCoderOptions, DeepCoderTasks, split_cases
from longrein_deepcoder.verifier import DeepCoderVerifier

LARGER = {
    "problem": "Print the larger of two integers.",
    "starter_code": "",
    "metadata": {"func_name": None},
    "tests": json.dumps([{"input": "4 9\n", "output": "9\n", "testtype": "stdin"}]),
}
COUNT = {
    "problem": "Count items >= k.",
    "starter_code": "class Solution:\n    def countAtLeast(self, xs: List[int], k: int) -> int:\n        ",
    "metadata": {"func_name": "countAtLeast"},
    "tests": json.dumps([{"input": "[3, 8, 5]\n5", "output": "2", "testtype": "functional"}]),
}
DOUBLE = {
    "problem": "Double n.",
    "solutions": ["```python\nprint(2*int(input()))\n```"],
    "tests": json.dumps([{"type": "stdin_stdout", "input": "3\n", "output": "6\n"}]),
}
JOIN = {
    "problem": "Write join_all(parts, sep).",
    "solutions": ["..."],
    "tests": json.dumps([{"type": "function_call", "fn_name": "join_all", "input": [["a", "b"], "-"], "output": ["a-b"]}]),
}
REVERSE = {"problem": "Reverse the words.", "solutions": ["..."], "tests": json.dumps({"inputs": ["a b\n"], "outputs": ["b a\n"]})}
SQUARE = {
    "problem": "Return n*n.",
    "solutions": ["..."],
    "tests": json.dumps({"fn_name": "sq", "inputs": [[3], [0]], "outputs": [[9], [0]]}),
}


@pytest.mark.parametrize(
    ("config", "row", "kind", "fn_name", "cases"),
    [
        ("lcbv5", LARGER, "stdin", None, [("4 9\n", "9\n")]),
        ("lcbv5", COUNT, "call", "countAtLeast", [([[3, 8, 5], 5], 2)]),
        ("primeintellect", DOUBLE, "stdin", None, [("3\n", "6\n")]),
        ("primeintellect", JOIN, "call", "join_all", [([["a", "b"], "-"], "a-b")]),
        ("taco", REVERSE, "stdin", None, [("a b\n", "b a\n")]),
        ("taco", SQUARE, "call", "sq", [([3], 9), ([0], 0)]),
        ("codeforces", {"problem": "x", "tests": '[{"input": "1", "output": "2"}]'}, "stdin", None, [("1", "2")]),
    ],
)
def test_the_shapes_of_the_configs(config: Any, row: dict[str, Any], kind: str, fn_name: str | None, cases: list[Any]) -> None:
    columns = dict.fromkeys(("problem", "tests", "solutions", "starter_code", "metadata"))
    normal = normalise(config, {**columns, **row})
    assert (normal.kind, normal.fn_name, normal.compare) == (kind, fn_name, "lines")
    assert [(case.input, case.output) for case in normal.cases] == cases
    assert normalise(config, {**row, "tests": json.loads(row["tests"])}) == normal


def taco(**tests: Any) -> dict[str, Any]:
    return {"problem": "x", "tests": json.dumps(tests)}


def prime(*tests: dict[str, Any]) -> dict[str, Any]:
    return {"problem": "x", "tests": json.dumps(tests)}


def test_awkward_but_usable_values() -> None:
    assert normalise("taco", taco(inputs=[["1 2", "3"]], outputs=[["4", "5"]])).cases == (Case("1 2\n3", "4\n5"),)
    unwrapped = prime(*[{"type": "function_call", "fn_name": "f", "input": [n], "output": value} for n, value in enumerate([[1], [1, 2]])])
    assert [case.output for case in normalise("primeintellect", unwrapped).cases] == [[1], [1, 2]]
    scalar = prime({"type": "function_call", "fn_name": "f", "input": [1], "output": 7})
    assert normalise("primeintellect", scalar).cases[0].output == 7
    keys = taco(fn_name="f", inputs=[[{"1": {"-2": 0}, "10": []}, {"1": 1, "a": 2}]], outputs=[[0]])
    assert normalise("taco", keys).cases[0].input == [{1: {-2: 0}, 10: []}, {"1": 1, "a": 2}]
    literal = {**COUNT, "metadata": "{'func_name': 'countAtLeast'}"}
    assert normalise("lcbv5", literal).fn_name == "countAtLeast"
    digits = "9" * 5000
    row = {"problem": "x", "tests": f'{{"fn_name": "f", "inputs": [[{digits}]], "outputs": [[1]]}}'}
    assert normalise("taco", row).cases[0].input[0] == 10**5000 - 1


@pytest.mark.parametrize(
    ("config", "row", "reason"),
    [
        ("taco", {"problem": "x", "tests": "{"}, "tests are not JSON"),
        ("taco", {"problem": "x", "tests": "[" * 100_000}, "tests are not JSON"),
        ("taco", {"problem": "x", "tests": None}, "no tests column"),
        ("taco", {"problem": "x"}, "no tests column"),
        ("taco", {"problem": "x", "tests": "3"}, "tests are neither a list nor a table"),
        ("taco", taco(inputs=[], outputs=[]), "no cases"),
        ("taco", taco(inputs=["1"], outputs=[]), "unequal lengths"),
        ("taco", taco(inputs="1", outputs=["1"]), "inputs or outputs are not a list"),
        ("taco", taco(inputs=[1], outputs=["1"]), "an input is not text"),
        ("taco", taco(inputs=["1"], outputs=[[1]]), "an output is not text"),
        ("taco", taco(fn_name="f", inputs=["1"], outputs=[[1]]), "arguments are not a list"),
        ("taco", taco(fn_name="f(x)", inputs=[[1]], outputs=[[1]]), "function name is not an identifier"),
        ("primeintellect", prime(), "no cases"),
        ("primeintellect", prime({"type": "regex", "input": "1", "output": "1"}), "unknown type"),
        ("primeintellect", prime({"input": "1", "output": "1"}), "unknown type"),
        ("primeintellect", prime({"type": "stdin_stdout", "input": "1"}), "a case without input or output"),
        ("primeintellect", prime({"type": "function_call", "input": [1], "output": [1]}), "no function name"),
        (
            "primeintellect",
            prime(
                {"type": "stdin_stdout", "input": "1", "output": "1"},
                {"type": "function_call", "fn_name": "f", "input": [1], "output": [1]},
            ),
            "mixed types",
        ),
        ("lcbv5", {**COUNT, "metadata": None}, "no function name"),
        ("lcbv5", {**COUNT, "tests": [{"input": "x y", "output": "2", "testtype": "functional"}]}, "a call case is not JSON"),
        ("codeforces", {"problem": "This is an interactive problem.", "tests": [{"input": "1", "output": "2"}]}, "interactive problem"),
        (
            "codeforces",
            {"problem": "If there are multiple answers, print any of them.", "tests": [{"input": "1", "output": "2"}]},
            "several answers are right",
        ),
        ("codeforces", {"problem": "Print the items in any order.", "tests": [{"input": "1", "output": "2"}]}, "several answers are right"),
        ("taco", {**SQUARE, "compare": "fuzzy"}, "unknown compare mode"),
    ],
)
def test_rows_that_do_not_fit_are_rejected_with_a_reason(config: Any, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(Rejected) as error:
        normalise(config, row)
    assert error.value.reason == reason


def test_an_unknown_config_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'taco'"):
        normalise("taca", SQUARE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("problem", "extra", "compare"),
    [
        ("Print the sum.", {}, "lines"),
        ("Print the sum.", {"compare": "tokens"}, "tokens"),
        ("Print the sum.", {"metadata": {"compare": "icase"}}, "icase"),
        ("Your answer may have an absolute or relative error of at most 10^{-6}.", {}, "float"),
        ("You can print each letter in any case (upper or lower).", {}, "icase"),
        ("In case of multiple answers print the lexicographically smallest. There are multiple test cases.", {}, "lines"),
    ],
)
def test_compare_mode_is_explicit(problem: str, extra: dict[str, Any], compare: str) -> None:
    assert normalise("taco", {**REVERSE, "problem": problem, **extra}).compare == compare


# Splitting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "most", "public", "graded"),
    [
        (["a", "b", "c"], None, (), (0, 1, 2)),
        (["aaa", "a", "a", "a"], None, (1, 2), (0, 3)),
        (["aaaa", "aaa", "aa", "a", "aaaaa"], None, (2, 3), (0, 1, 4)),
        (["a" * n for n in range(10)], 3, (0, 1), (7, 8, 9)),
        (["a", "b", "cc", "dd", "ee"], 2, (0, 1), (2, 3)),
        (["a", "b", "c"], 2, (), (0, 1)),
    ],
)
def test_split_is_decided_by_the_row_alone(inputs: list[str], most: int | None, public: Any, graded: Any) -> None:
    split = split_cases([Case(text, "x") for text in inputs], most)
    assert (split.public, split.graded) == (public, graded)


def write_rows(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def many(n: int) -> dict[str, Any]:
    return taco(inputs=[f"{k} secret{k}\n" for k in range(n)], outputs=[f"answer{k}\n" for k in range(n)])


def test_tasks_show_public_cases_and_hide_the_others(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", many(5), SQUARE, "not json", taco(inputs=[], outputs=[]))
    tasks = DeepCoderTasks(DeepCoderOptions("taco", path))
    five, square = tasks.tasks()
    assert tasks.rejected == {"row is not JSON": ["taco-2"], "no cases": ["taco-3"]}
    assert [example.stdout for example in five.public.examples] == ["answer0\n", "answer1\n"]
    assert five.metadata["public"] == [0, 1]
    assert five.metadata["graded"] == [2, 3, 4]
    shown = repr(five)
    assert "answer1" in shown
    assert not any(f"answer{k}" in shown or f"secret{k}" in shown for k in (2, 3, 4))
    hidden = tasks.hidden(five.id)
    assert [case["output"] for case in hidden["cases"]] == ["answer2\n", "answer3\n", "answer4\n"]
    assert square.public.examples == ()
    assert square.public.check is None
    assert "`sq`" in square.public.prompt
    assert len(tasks.hidden(square.id)["cases"]) == 2


def test_hidden_is_resolved_in_another_process_from_the_reference(tmp_path: Path) -> None:
    from longrein.options import structure

    tasks = DeepCoderTasks(DeepCoderOptions("taco", write_rows(tmp_path / "rows.jsonl", "", many(4), "", SQUARE)))
    for task in tasks.tasks():
        again = DeepCoderTasks(structure(DeepCoderOptions, json.loads(json.dumps(task.ref.options)), where="[taskset.options]"))
        assert again.hidden(task.ref.task_id) == tasks.hidden(task.id)
    with pytest.raises(TaskError, match="unknown task 'taco-99'"):
        tasks.hidden("taco-99")
    with pytest.raises(TaskError, match="unknown task 'lcbv5-0'"):
        tasks.hidden("lcbv5-0")


def test_a_program_that_answers_only_the_public_cases_scores_nothing(tmp_path: Path) -> None:
    row = taco(inputs=[str(n) for n in range(6)], outputs=[str(n * n) for n in range(6)])
    tasks = DeepCoderTasks(DeepCoderOptions("taco", write_rows(tmp_path / "rows.jsonl", row)))
    (task,) = tasks.tasks()
    workspace = tmp_path / "workspace"
    for name, text in task.public.files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    (workspace / "solution.py").write_text("print({'0': '0', '1': '1'}.get(input()))")
    assert task.public.check is not None
    done = subprocess.run([sys.executable, task.public.check], cwd=workspace, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    verifier = DeepCoderVerifier()
    assert verifier.grade(tasks.hidden(task.id), workspace).score == 0.0
    (workspace / "solution.py").write_text("print(int(input()) ** 2)")
    assert verifier.grade(tasks.hidden(task.id), workspace).score == 1.0
    verifier.close()


def test_digest_covers_hidden_cases_and_is_stable(tmp_path: Path) -> None:
    def digests(*rows: Any) -> list[str]:
        return [task.digest for task in DeepCoderTasks(DeepCoderOptions("taco", write_rows(tmp_path / "rows.jsonl", *rows))).tasks()]

    other = taco(inputs=[f"{k} secret{k}\n" for k in range(5)], outputs=["answer0\n", "answer1\n", "answer2\n", "answer3\n", "changed\n"])
    assert digests(many(5)) == digests(many(5))
    assert digests(many(5)) != digests(other)


def test_own_solution_comes_without_its_fence(tmp_path: Path) -> None:
    tasks = DeepCoderTasks(DeepCoderOptions("primeintellect", write_rows(tmp_path / "rows.jsonl", DOUBLE, {**DOUBLE, "solutions": None})))
    assert tasks.solution("primeintellect-0") == {"solution.py": "print(2*int(input()))\n"}
    assert tasks.solution("primeintellect-1") is None


def test_boilerplate_is_stripped() -> None:
    text = (
        "Solve the following coding problem using the programming language python:\n\nAdd two numbers.\n\n"
        "The input will be stdin and you should print your solution to stdout\n\n\nNow solve the problem and return the code."
    )
    assert statement(text) == "Add two numbers."


def test_codeforces_says_that_it_is_for_evaluation_only() -> None:
    assert "evaluation only" in str(DeepCoderTasks(DeepCoderOptions("codeforces")).training_refused)
    assert DeepCoderTasks(DeepCoderOptions("taco")).training_refused is None


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no such file of rows: .*missing\.jsonl"):
        list(DeepCoderTasks(DeepCoderOptions("taco", tmp_path / "missing.jsonl")).tasks())


def test_huge_rows_are_skipped_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for _ in range(3):
            file.write('{"problem": "x", "tests": "[{\\"type\\": \\"stdin_stdout\\", \\"output\\": \\"1\\", \\"input\\": \\"')
            for _ in range(60):
                file.write("7" * (1 << 20))
            file.write('\\"}]"}\n')
        file.write(json.dumps(DOUBLE) + "\n")
    program = f"""
import resource
from pathlib import Path
from longrein_deepcoder.taskset import DeepCoderOptions, DeepCoderTasks
tasks = DeepCoderTasks(DeepCoderOptions("primeintellect", Path({str(path)!r})))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print([task.id for task in tasks.tasks()], tasks.rejected, tasks.hidden("primeintellect-3")["cases"])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    listed, grown_mb = done.stdout.splitlines()
    assert listed.startswith("['primeintellect-3'] {'row too large': ['primeintellect-0', 'primeintellect-1', 'primeintellect-2']}")
    assert int(grown_mb) < 100


def test_large_rows_of_the_hub_are_measured_without_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra train is not installed")
    large = {**DOUBLE, "tests": DOUBLE["tests"] + " " * (2 << 20)}
    rows = datasets.Dataset.from_list([DOUBLE, large, {**DOUBLE, "solutions": None}])
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, split: rows)
    tasks = DeepCoderTasks(DeepCoderOptions("primeintellect", max_row_mb=1))
    assert [task.id for task in tasks.tasks()] == ["primeintellect-0", "primeintellect-2"]
    assert tasks.rejected == {"row too large": ["primeintellect-1"]}
    assert tasks.solution("primeintellect-0") == {"solution.py": "print(2*int(input()))\n"}
    assert [case["output"] for case in tasks.all_cases("primeintellect-2")["cases"]] == ["6\n"]


# The check script ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        (taco(inputs=["1\n", "2\n", "3\n", "4\n"], outputs=["1", "4", "9", "16"]), "print(int(input()) ** 2)", "print(0)"),
        (taco(inputs=["1\n", "2\n", "3\n", "4\n"], outputs=["1", "4", "9", "16"]), "print(int(input()) ** 2, '\\n')", "1/0"),
        (
            taco(fn_name="f", inputs=[[1], [2], [3], [4]], outputs=[[[1, 1]], [[2, 4]], [[3, 9]], [[4, 16]]]),
            "def f(n):\n    print('noise', end='')\n    return n, n * n",
            "def f(n): return [n]",
        ),
        (
            taco(fn_name="f", inputs=[[1], [2], [3], [4]], outputs=[[1], [4], [9], [16]]),
            "class Solution:\n    def f(self, n): return n * n",
            "def g(n): return n",
        ),
        (
            {**taco(inputs=["1\n", "3\n", "7\n", "9\n"], outputs=["1.0", "0.333333", "0.142857", "0.111111"]), "compare": "float"},
            "print(1 / int(input()))",
            "print(0.1)",
        ),
        (
            {**taco(inputs=["1\n", "3\n", "7\n", "9\n"], outputs=["YES", "NO", "NO", "NO"]), "compare": "icase"},
            "print('yes' if input() == '1' else 'no')",
            "print('YE')",
        ),
    ],
)
def test_check_script_agrees_with_the_grader_on_public_cases(tmp_path: Path, row: dict[str, Any], right: str, wrong: str) -> None:
    (task,) = DeepCoderTasks(DeepCoderOptions("taco", write_rows(tmp_path / "rows.jsonl", row))).tasks()
    for name, text in task.public.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for program, code in ((right, 0), (wrong, 1)):
        (tmp_path / "solution.py").write_text(program)
        done = subprocess.run([sys.executable, str(task.public.check)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done
        assert done.stderr == ""
        assert len(done.stdout) < 1000
        assert str(tmp_path) not in done.stdout


def test_same_shortcut_never_raises_on_odd_bytes() -> None:
    for mode in ("lines", "float", "tokens", "icase"):
        assert not same(mode, b"\xff\x00\xfe", b"1.5")  # type: ignore[arg-type]
