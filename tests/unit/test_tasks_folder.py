"""The folder task set and its verifier."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longrein.errors import TaskError
from longrein.tasks.folder import FolderOptions, FolderTasks, FolderVerifier


def make_task(folder: Path, *, verify: str = "", toml: str = "") -> Path:
    (folder / "files").mkdir(parents=True)
    (folder / "hidden").mkdir()
    (folder / "prompt.md").write_text("Write answer.txt holding 42.\n")
    (folder / "files" / "notes.txt").write_text("start here\n")
    (folder / "hidden" / "expected.txt").write_text("42\n")
    if verify:
        (folder / "verify.sh").write_text(verify)
    if toml:
        (folder / "task.toml").write_text(toml)
    return folder


def grade(task: Path, workspace: Path) -> tuple[str, float | None, str]:
    tasks = FolderTasks(FolderOptions(task))
    (only,) = tasks.tasks()
    verdict = asyncio.run(FolderVerifier().grade(tasks.hidden(only.id), workspace))
    return verdict.status, verdict.score, verdict.reason


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def test_public_part_shows_prompt_and_files_but_nothing_hidden(tmp_path: Path) -> None:
    task = make_task(tmp_path / "answer", verify="cmp answer.txt ../hidden/expected.txt")
    (only,) = FolderTasks(FolderOptions(task)).tasks()
    assert only.id == "answer"
    assert only.public.prompt == "Write answer.txt holding 42.\n"
    assert only.public.files == {"notes.txt": "start here\n"}
    assert "42\n" not in only.public.files.values()


def test_exit_code_decides(tmp_path: Path, workspace: Path) -> None:
    task = make_task(tmp_path / "answer", verify="cmp answer.txt ../hidden/expected.txt")
    assert grade(task, workspace)[:2] == ("failed", 0.0)
    (workspace / "answer.txt").write_text("42\n")
    assert grade(task, workspace)[:2] == ("passed", 1.0)


def test_command_works_on_a_copy(tmp_path: Path, workspace: Path) -> None:
    task = make_task(tmp_path / "answer", verify="touch new; rm -f ../hidden/expected.txt")
    assert grade(task, workspace)[0] == "passed"
    assert list(workspace.iterdir()) == []
    assert (task / "hidden" / "expected.txt").exists()


def test_command_may_write_a_score(tmp_path: Path, workspace: Path) -> None:
    task = make_task(tmp_path / "answer", toml='verify = "echo 0.25 > $LONGREIN_SCORE; exit 1"\n')
    assert grade(task, workspace)[:2] == ("failed", 0.25)


@pytest.mark.parametrize(
    ("verify", "reason"),
    [
        ("exit 77", "could not grade"),
        ("no-such-program", "exit code 127"),
        ("echo high > $LONGREIN_SCORE", "'high'"),
        ("echo 1.5 > $LONGREIN_SCORE", "'1.5'"),
        ("mkdir $LONGREIN_SCORE", "it is no file"),
        ("ln -s /dev/null $LONGREIN_SCORE", "cannot be read"),
    ],
)
def test_grader_trouble_is_unscorable(tmp_path: Path, workspace: Path, verify: str, reason: str) -> None:
    status, score, said = grade(make_task(tmp_path / "answer", verify=verify), workspace)
    assert (status, score) == ("unscorable", None)
    assert reason in said


def test_endless_command_fails_and_is_ended(tmp_path: Path, workspace: Path) -> None:
    task = make_task(tmp_path / "answer", toml='verify = "sleep 600 & sleep 600"\ntimeout_s = 0.3\n')
    status, score, reason = grade(task, workspace)
    assert (status, score) == ("failed", 0.0)
    assert "within its time" in reason


def test_python_of_the_grader_is_on_the_path(tmp_path: Path, workspace: Path) -> None:
    task = make_task(tmp_path / "answer", verify='python -c "import attrs" && $PYTHON -c "import attrs"')
    assert grade(task, workspace)[0] == "passed"


def test_folder_of_folders_lists_the_broken_ones(tmp_path: Path) -> None:
    make_task(tmp_path / "set" / "b", verify="true")
    make_task(tmp_path / "set" / "a", toml='verify = "true"\n')
    make_task(tmp_path / "set" / "no-verify")
    make_task(tmp_path / "set" / "typo", toml='verfiy = "true"\n')
    make_task(tmp_path / "set" / "no-check", toml='verify = "true"\ncheck = "check.py"\n')
    (tmp_path / "set" / "unrelated").mkdir()
    tasks = FolderTasks(FolderOptions(tmp_path / "set"))
    assert [task.id for task in tasks.tasks()] == ["a", "b"]
    make_task(tmp_path / "set" / "two", verify="true", toml='verifier = "mine"\n')
    list(tasks.tasks())
    reasons = {name: reason for reason, names in tasks.rejected.items() for name in names}
    assert "no verify command" in reasons["no-verify"]
    assert "did you mean 'verify'" in reasons["typo"]
    assert "check.py" in reasons["no-check"]
    assert "it takes one of them" in reasons["two"]
    make_task(tmp_path / "set" / "none", toml='verifier = "folder"\n')
    list(tasks.tasks())
    assert any("which runs a verify command" in reason for reason in tasks.rejected)


def test_a_task_without_a_command_names_its_verifier_or_has_tests(tmp_path: Path) -> None:
    make_task(tmp_path / "a", toml='verifier = "mine"\nmemory_mb = 7\n')
    make_task(tmp_path / "b")
    (tmp_path / "b" / "hidden" / "test_answer.py").write_text("def test_it(): pass\n")
    tasks = FolderTasks(FolderOptions(tmp_path))
    assert [(task.id, task.verifier) for task in tasks.tasks()] == [("a", "mine"), ("b", "pytest")]
    assert tasks.hidden("a") == {"folder": str(tmp_path / "a"), "verify": None, "timeout_s": 60.0, "memory_mb": 7}


def test_digest_follows_hidden_content(tmp_path: Path) -> None:
    task = make_task(tmp_path / "answer", verify="true")
    (before,) = FolderTasks(FolderOptions(task)).tasks()
    (task / "hidden" / "expected.txt").write_text("43\n")
    (after,) = FolderTasks(FolderOptions(task)).tasks()
    assert before.digest != after.digest


def test_solution_files_are_for_the_oracle(tmp_path: Path) -> None:
    task = make_task(tmp_path / "answer", verify="true")
    tasks = FolderTasks(FolderOptions(task))
    assert tasks.solution("answer") is None
    (task / "solution").mkdir()
    (task / "solution" / "answer.txt").write_text("42\n")
    assert tasks.solution("answer") == {"answer.txt": "42\n"}


def test_unusable_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no such task folder"):
        list(FolderTasks(FolderOptions(tmp_path / "missing")).tasks())
    with pytest.raises(TaskError, match=r"prompt\.md"):
        list(FolderTasks(FolderOptions(tmp_path)).tasks())
    with pytest.raises(TaskError, match="unknown task 'other'"):
        FolderTasks(FolderOptions(make_task(tmp_path / "answer", verify="true"))).hidden("other")
