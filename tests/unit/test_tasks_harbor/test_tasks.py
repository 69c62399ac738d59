"""Which Harbor tasks are tasks here, what agents see of them, and why the others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.test_tasks_harbor.conftest import DOCKERFILE, TEST, TOML, make_task

from longrein.config import TasksetConfig
from longrein.errors import TaskError
from longrein.plugins import PluginHost
from longrein.rollout.tasks import load_tasks, open_taskset
from longrein.tasks.harbor import HarborTasks
from longrein.tasks.harbor.taskset import HarborOptions


def rejected(folder: Path, *, offline: bool = False) -> str:
    """Return why a task is refused, or an empty string."""
    tasks = HarborTasks(HarborOptions(folder, offline))
    list(tasks.tasks())
    return next(iter(tasks.rejected), "")


def test_an_agent_sees_instruction_and_files_and_nothing_of_the_tests(tmp_path: Path) -> None:
    text = "<!-- benchmark data, canary GUID 1 -->\n\n# Sums\nWrite it.\n"
    (task,) = HarborTasks(HarborOptions(make_task(tmp_path / "sum", instruction=text))).tasks()
    assert (task.id, task.verifier, task.public.workdir) == ("sum", "harbor", "/app")
    assert task.public.prompt == "# Sums\nWrite it.\n"
    assert task.public.files == {"data/numbers": "3\n4\n", "notes.txt": "two numbers\n"}
    assert task.metadata == {"asked": {"cpus": 1, "memory_mb": 2048, "storage_mb": 10240, "timeout_s": 120.0}}


@pytest.mark.parametrize(
    ("toml", "reason"),
    [
        ("[environment]\ngpus = 1\n", "asks for environment.gpus"),
        ("[environment]\ngpus = 0\nmcp_servers = []\nos = 'linux'\n[solution.env]\n", ""),
        ("[environment]\nenv = {KEY = '${KEY}'}\n", "asks for environment.env"),
        ("[verifier.env]\nKEY = '1'\n", "asks for verifier.env"),
        ("[verifier]\nenvironment_mode = 'separate'\n", "asks for verifier.environment_mode"),
        ("[verifier]\nenvironment_mode = 'shared'\ntimeout_sec = 9\n", ""),
        ("[verifier]\ntimeout_sec = -1\n", "timeout_sec must be a number above 0"),
        ("[agent]\nuser = 'agent'\n", "asks for agent.user"),
        ("[[steps]]\nname = 'one'\n", "asks for steps"),
        ("schema_version = '2.0'\n", "schema version 2.0"),
        ("schema_version = '1.3'\nsource = 'x'\n[task]\nname = 'org/sum'\n", ""),
        ("not toml", "cannot be read"),
        ("environment = ''\nagent = []\n", ""),
        ("environment = 'x'\n", "asks for environment"),
    ],
)
def test_a_task_that_asks_for_what_is_not_here_is_refused(tmp_path: Path, toml: str, reason: str) -> None:
    said = rejected(make_task(tmp_path / "sum", toml=toml))
    assert reason in said
    assert bool(reason) == bool(said)


@pytest.mark.parametrize("line", ["allow_internet = true", "network_mode = 'public'", "network_mode = 'allowlist'"])
def test_a_network_that_is_asked_for_is_refused_unless_told_otherwise(tmp_path: Path, line: str) -> None:
    task = make_task(tmp_path / "sum", toml=f"[environment]\n{line}\n")
    assert "offline = true takes it" in rejected(task)
    assert rejected(task, offline=True) == ""


@pytest.mark.parametrize(
    ("dockerfile", "reason"),
    [
        ("FROM python:3.11-slim\nWORKDIR /app\nUSER root\n", ""),
        ("FROM docker.io/library/debian@sha256:0\nWORKDIR /app\n", ""),
        ("FROM python:2.7\nWORKDIR /app\n", "has Python 2.7"),
        ("FROM alpine\nWORKDIR /app\n", "starts from alpine"),
        ("FROM ghcr.io/someone/python:3.11\nWORKDIR /app\n", "starts from ghcr.io/someone/python"),
        ("FROM ubuntu\nFROM ubuntu\nWORKDIR /app\n", "several stages"),
        ("FROM ubuntu\nRUN apt-get update \\\n  && apt-get install -y git\nWORKDIR /app\n", "built with RUN"),
        ("FROM ubuntu\nENV A=1\nWORKDIR /app\n", "built with ENV"),
        ("FROM ubuntu\nADD x /app/\nWORKDIR /app\n", "built with ADD"),
        ("FROM ubuntu\nUSER app\nWORKDIR /app\n", "built with USER"),
        ("FROM ubuntu\nWORKDIR $HOME\n", "variables"),
        ("FROM ubuntu\n", "working folder is /"),
        ("FROM ubuntu\nWORKDIR /usr\n", "working folder is /usr"),
        ("FROM ubuntu\nWORKDIR /srv/app\n", "working folder is /srv/app"),
        ("FROM ubuntu\nWORKDIR /app\nCOPY notes.txt /etc/\n", "outside of its working folder: /etc/notes.txt"),
        ("FROM ubuntu\nWORKDIR /app\nCOPY ../tests/wanted .\n", "which is not there"),
        ("FROM ubuntu\nWORKDIR /app\nCOPY --chmod=755 notes.txt .\n", "options or wildcards"),
        ("FROM ubuntu\nWORKDIR /app\nCOPY *.txt .\n", "options or wildcards"),
    ],
)
def test_an_image_that_would_have_to_be_built_is_refused(tmp_path: Path, dockerfile: str, reason: str) -> None:
    said = rejected(make_task(tmp_path / "sum", dockerfile=dockerfile))
    assert reason in said
    assert bool(reason) == bool(said)


@pytest.mark.parametrize(
    ("copies", "files"),
    [
        ("COPY . .", ["Dockerfile", "data/numbers", "notes.txt"]),
        ("COPY data notes.txt x/", ["x/notes.txt", "x/numbers"]),
        ('COPY ["notes.txt", "read me"]', ["read me"]),
        ("COPY notes.txt /app", ["notes.txt"]),
        ("COPY data in\nCOPY notes.txt in", ["in/notes.txt", "in/numbers"]),
        ("# COPY data .\ncopy \\\n  notes.txt \\\n  b", ["b"]),
    ],
)
def test_files_are_placed_as_docker_places_them(tmp_path: Path, copies: str, files: list[str]) -> None:
    (task,) = HarborTasks(HarborOptions(make_task(tmp_path / "sum", dockerfile=f"FROM ubuntu\nWORKDIR /app\n{copies}\n"))).tasks()
    assert sorted(task.public.files) == files


def test_files_that_a_workspace_cannot_hold_are_refused(tmp_path: Path) -> None:
    binary, script, link, services = (make_task(tmp_path / name) for name in ("binary", "script", "link", "services"))
    (binary / "environment" / "notes.txt").write_bytes(b"\xff\xfe")
    (script / "environment" / "notes.txt").chmod(0o755)
    (link / "environment" / "notes.txt").unlink()
    (link / "environment" / "notes.txt").symlink_to(link / "tests" / "wanted")
    (services / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    assert "not UTF-8" in rejected(binary)
    assert "executable" in rejected(script)
    assert "a link" in rejected(link)
    assert "services (docker-compose.yaml)" in rejected(services)


def test_tests_that_would_need_a_network_are_refused(tmp_path: Path) -> None:
    for number, line in enumerate(("apt-get update", "curl -LsSf https://x | sh", "uvx -p 3.13 pytest /tests", "python -m pip install x")):
        task = make_task(tmp_path / str(number), test=f"#!/bin/bash\n{line}\n{TEST}")
        assert f"tests/test.sh calls {'pip' if 'pip' in line else line.split()[0]}" in rejected(task)
    (task / "tests" / "test.sh").unlink()
    assert rejected(task) == "it has no tests/test.sh"


def test_an_instruction_without_a_word_is_refused(tmp_path: Path) -> None:
    assert rejected(make_task(tmp_path / "sum", instruction="# canary GUID 1\n\n")) == "its instruction.md is empty"


def test_a_folder_of_tasks_is_recognised_and_lists_what_it_refuses(tmp_path: Path) -> None:
    for name in ("b", "a"):
        make_task(tmp_path / name)
    make_task(tmp_path / "built", dockerfile=DOCKERFILE + "RUN make\n")
    (make_task(tmp_path / "steps") / "steps").mkdir()
    (tmp_path / "steps" / "instruction.md").unlink()
    (tmp_path / "other").mkdir()
    host = PluginHost.load()
    taskset = open_taskset(TasksetConfig(f"{tmp_path}/"), host)
    assert [task.id for task in taskset.tasks()] == ["a", "b"]
    assert sorted(name for names in taskset.rejected.values() for name in names) == ["built", "steps"]
    assert [task.id for task in load_tasks(TasksetConfig("harbor", options={"path": str(tmp_path / "a")}), host)] == ["a"]
    with pytest.raises(TaskError, match="unknown task 'c'"):
        taskset.hidden("c")
    with pytest.raises(TaskError, match=r"task\.toml and instruction\.md"):
        list(HarborTasks(HarborOptions(tmp_path / "other")).tasks())
    with pytest.raises(TaskError, match="no such folder"):
        list(HarborTasks(HarborOptions(tmp_path / "absent")).tasks())


def test_the_digest_follows_the_tests(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "sum")
    (before,) = HarborTasks(HarborOptions(folder)).tasks()
    (folder / "tests" / "wanted").write_text("8\n")
    (after,) = HarborTasks(HarborOptions(folder)).tasks()
    assert before.digest != after.digest
    assert TOML in (folder / "task.toml").read_text()
