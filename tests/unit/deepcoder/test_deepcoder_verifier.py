"""The deepcoder verifier itself: its own troubles, many grades, rows as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from longrein.model import Verdict
from longrein_deepcoder.verifier import DeepCoderVerifier, DeepCoderVerifierOptions

OPTIONS: dict[str, Any] = {"cpu_s": 1.0, "wall_s": 2.0, "memory_mb": 256, "output_kb": 1024, "disk_mb": 8}
Grade = Callable[..., Verdict]


def statuses(verdict: Verdict) -> list[str]:
    return [case.status for case in verdict.cases]


def test_without_namespaces_the_statuses_are_the_same(tmp_path: Path) -> None:
    options = DeepCoderVerifierOptions(**{**OPTIONS, "isolation": "processes"})
    verifier = DeepCoderVerifier(options)
    hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": "1", "output": "1"}], "compare": "lines"}
    try:
        for program, status in [
            ("print(input())", "passed"),
            ("print(0)", "wrong_answer"),
            ("1/0", "runtime_error"),
            ("while True: pass", "timeout"),
            ("while True: print('x' * 999)", "output_limit"),
            ("x =", "compile_error"),
            ("x = bytearray(1 << 40)", "memory_limit"),
            ("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(99)\n    exit()\nprint(1)", "passed"),
        ]:
            (tmp_path / "solution.py").write_text(program)
            verdict = verifier.grade(hidden, tmp_path)
            assert statuses(verdict) == [status], (program, verdict)
            assert verdict.details["isolation"] == "processes"
    finally:
        verifier.close()


def test_unusable_interpreter_is_unscorable(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("print(1)")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    verifier = DeepCoderVerifier(DeepCoderVerifierOptions(python=broken))
    verdict = verifier.grade({"kind": "stdin", "fn_name": None, "cases": [{"input": "", "output": "1"}], "compare": "lines"}, tmp_path)
    assert (verdict.status, verdict.score) == ("unscorable", None)


def test_a_killed_server_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("print(1)")
    hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": "", "output": "1"}], "compare": "lines"}
    verifier = DeepCoderVerifier(DeepCoderVerifierOptions(**OPTIONS))
    assert verifier.grade(hidden, tmp_path).status == "passed"
    assert verifier._server is not None
    verifier._server._process.kill()
    verifier._server._process.wait()
    assert verifier.grade(hidden, tmp_path).status == "passed"
    verifier.close()


def test_a_killed_grader_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("import os\nos.fork()\nos.fork()\nwhile True: pass\n")
    program = f"""
import os, sys
from pathlib import Path
from longrein_deepcoder.verifier import DeepCoderVerifier
verifier = DeepCoderVerifier()
print(verifier._ready()._process.pid, flush=True)
verifier.grade({{"kind": "stdin", "fn_name": None, "compare": "lines", "cases": [{{"input": "", "output": ""}}]}}, Path({str(tmp_path)!r}))
"""
    grader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert grader.stdout is not None
    server = int(grader.stdout.readline())
    watched = os.pidfd_open(server)
    grader.kill()
    grader.wait()
    grader.stdout.close()
    import select

    assert select.select([watched], [], [], 10)[0] == [watched]
    os.close(watched)


def test_several_grades_at_once_do_not_mix(verifier: DeepCoderVerifier, tmp_path: Path) -> None:
    def one(number: int) -> list[str]:
        workspace = tmp_path / str(number)
        workspace.mkdir()
        (workspace / "solution.py").write_text(f"open('mine', 'w').write('{number}')\nprint(int(input()) + {number})\n")
        cases = [{"input": str(n), "output": str(n + number)} for n in range(4)] + [{"input": "0", "output": str(number + 1)}]
        return statuses(verifier.grade({"kind": "stdin", "fn_name": None, "cases": cases, "compare": "lines"}, workspace))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(one, range(24))) == [["passed"] * 4 + ["wrong_answer"]] * 24


def test_the_verdict_is_the_same_with_both_cores_busy(grade: Grade) -> None:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        program = "import time\nwhile time.process_time() < 0.5: pass\nprint(1)"
        verdict = grade(program, ("", "1"))
        assert statuses(verdict) == ["passed"], verdict
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_hundreds_of_grades_leave_nothing_behind(tmp_path: Path) -> None:
    def leftovers(server: int) -> tuple[int, int, int, int]:
        """Open files of both processes, children of the server, folders."""
        children = len(Path(f"/proc/{server}/task/{server}/children").read_text().split())
        folders = list(Path(tempfile.gettempdir()).glob("longrein-grade-*"))
        here, there = (sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) for pid in (os.getpid(), server))
        return here, there, children, len(folders)

    program = "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nopen('x', 'w')\nprint(input())"
    (tmp_path / "solution.py").write_text(program)
    hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": "1", "output": "1"}], "compare": "lines"}
    verifier = DeepCoderVerifier(DeepCoderVerifierOptions(**OPTIONS))
    assert verifier.grade(hidden, tmp_path).status == "passed"
    files_here, files_there, _, folders = leftovers(verifier.server_pid)
    expected = (files_here, files_there, 1, folders)  # the box that is ready for the next program
    for _ in range(150):
        assert verifier.grade(hidden, tmp_path).status == "passed"
    deadline = time.monotonic() + 10
    while leftovers(verifier.server_pid) != expected and time.monotonic() < deadline:
        os.sched_yield()
    assert leftovers(verifier.server_pid) == expected
    pid = verifier.server_pid
    verifier.close()
    assert not Path(f"/proc/{pid}").exists()
