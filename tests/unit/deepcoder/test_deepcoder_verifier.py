"""The deepcoder verifier itself: its own troubles, many grades, rows as a whole."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from longrein.model import Verdict
from longrein_deepcoder import forked
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


def test_where_namespaces_do_not_work_a_warning_says_what_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "solution.py").write_text("print(1)")
    script = tmp_path / "python"  # its first server ends at once, as one that may not make namespaces
    once = f'case "$*" in *lr_main*) [ -e {tmp_path}/again ] || {{ touch {tmp_path}/again; exit 1; }} ;; esac'
    script.write_text(f'#!/bin/sh\n{once}\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    verifier = DeepCoderVerifier(DeepCoderVerifierOptions(python=script))
    try:
        verdict = verifier.grade({"kind": "stdin", "fn_name": None, "cases": [{"input": "", "output": "1"}], "compare": "lines"}, tmp_path)
    finally:
        verifier.close()
    assert (verdict.status, verdict.details["isolation"]) == ("passed", "processes")
    assert "(namespaces) did not start" in caplog.text
    assert "not against attacks" in caplog.text


def test_the_fork_server_starts_on_a_machine_where_every_case_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree(forked.MAIN.parent, tmp_path / "forkserver")
    init = copy / "lr_init.py"
    init.write_text(re.sub(r"WATCH_MS = \d+", "WATCH_MS = 0", init.read_text()))  # no case is done before its limits are looked at
    monkeypatch.setattr(forked, "MAIN", copy / "lr_main.py")
    (tmp_path / "solution.py").write_text("print(1)")
    with closing(DeepCoderVerifier(DeepCoderVerifierOptions(isolation="processes"))) as verifier:
        hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": "", "output": "1"}], "compare": "lines"}
        verdict = verifier.grade(hidden, tmp_path)
    assert verdict.status == "passed", verdict


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
    """CPU time decides: a program well within its second passes, and one beyond it does not, however long both wait for a core."""
    busy = "import time\nwhile time.process_time() < {}: pass\nprint(1)"
    programs = {
        busy.format(0.5): "passed",
        busy.format(30): "timeout",
        "import time; time.sleep(0.3); print(1)": "passed",
        "print(2)": "wrong_answer",
    }
    quiet = [statuses(grade(program, ("", "1"))) for program in programs]
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        loaded = [statuses(grade(program, ("", "1"))) for program in programs]
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert quiet == loaded == [[status] for status in programs.values()]


def test_the_verdict_names_the_interpreter(grade: Grade) -> None:
    assert grade("print(1)", ("", "1")).details["python"] == platform.python_version()


def leftovers(server: int) -> tuple[int, int, int, int, int]:
    """Return open files of this process and of the server with its workers, how many children this has and the server, folders."""
    here, workers = psutil.Process(), psutil.Process(server).children()
    folders = len(list(Path(tempfile.gettempdir()).glob("longrein-grade-*")))
    theirs = sum(process.num_fds() for process in [psutil.Process(server), *workers])
    return here.num_fds(), theirs, len(here.children()), len(workers), folders


def grade_again_and_again(tmp_path: Path, program: str, times: int) -> None:
    """Grade one program many times; nothing may be left or grow, and nothing may live when the verifier is closed."""
    (tmp_path / "solution.py").write_text(program)
    hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": "1", "output": "1"}], "compare": "lines"}
    verifier = DeepCoderVerifier(DeepCoderVerifierOptions(**OPTIONS))

    def memory_mb() -> float:
        server = psutil.Process(verifier.server_pid)
        return sum(process.memory_info().rss for process in [psutil.Process(), server, *server.children()]) / (1 << 20)

    for _ in range(20):
        assert verifier.grade(hidden, tmp_path).status == "passed"
    expected, before = leftovers(verifier.server_pid), memory_mb()
    for _ in range(times):
        assert verifier.grade(hidden, tmp_path).status == "passed"
    deadline = time.monotonic() + 10

    def grown() -> bool:
        # The first reading may catch a box that is just going; fewer of anything is nothing left.
        return any(now > then for now, then in zip(leftovers(verifier.server_pid), expected, strict=True))

    while grown() and time.monotonic() < deadline:
        os.sched_yield()
    assert not grown(), (leftovers(verifier.server_pid), expected)
    assert memory_mb() < before + 8
    server = psutil.Process(verifier.server_pid)
    everything = [server, *server.children(recursive=True)]
    verifier.close()
    assert psutil.wait_procs(everything, timeout=10)[1] == []


def test_hundreds_of_grades_leave_nothing_behind(tmp_path: Path) -> None:
    messy = "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nopen('x', 'w')\nprint(input())"
    grade_again_and_again(tmp_path, messy, 150)


@pytest.mark.more
@pytest.mark.timeout(1800)
def test_ten_thousand_grades_leave_nothing_behind(tmp_path: Path) -> None:
    grade_again_and_again(tmp_path, "print(input())", 10_000)
