"""Harbor tasks made for the tests."""

from __future__ import annotations

from pathlib import Path

TOML = """version = "1.0"
[metadata]
author_name = "Ada"
difficulty = "easy"
tags = ["sums"]
[verifier]
timeout_sec = 60.0
[agent]
timeout_sec = 120.0
[environment]
build_timeout_sec = 600.0
cpus = 1
memory_mb = 2048
storage_mb = 10240
"""
DOCKERFILE = 'FROM ubuntu:24.04\n\nWORKDIR /app\nCOPY data/ /app/data/\nCOPY notes.txt .\nCMD ["bash"]\n'
TEST = """#!/bin/bash
# curl is not needed here
mkdir -p /logs/verifier
if [ "$(cat /app/sum.txt)" = "$(cat /tests/wanted)" ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
SOLVE = "#!/bin/bash\nset -e\npaste -sd+ /app/data/numbers | bc 2>/dev/null > /app/sum.txt || echo $((3 + 4)) > /app/sum.txt\n"


def make_task(
    folder: Path, *, toml: str = TOML, dockerfile: str = DOCKERFILE, test: str = TEST, solve: str | None = SOLVE, instruction: str = ""
) -> Path:
    """Write a task that asks for the sum of two numbers in /app/data/numbers, and return its folder."""
    environment = folder / "environment"
    (environment / "data").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "task.toml").write_text(toml)
    (folder / "instruction.md").write_text(instruction or "Write the sum of /app/data/numbers to /app/sum.txt.\n")
    (environment / "Dockerfile").write_text(dockerfile)
    (environment / "data" / "numbers").write_text("3\n4\n")
    (environment / "notes.txt").write_text("two numbers\n")
    (folder / "tests" / "test.sh").write_text(test)
    (folder / "tests" / "wanted").write_text("7\n")
    if solve is not None:
        (folder / "solution").mkdir()
        (folder / "solution" / "solve.sh").write_text(solve)
    return folder
