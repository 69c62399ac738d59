"""The short private folder of a run: sockets and session folders, gone with the run however the run ends."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longrein.sandbox.folders import remove

JANITOR = """trap '' INT TERM HUP; cat >/dev/null
for line in /proc/[0-9]*/cmdline; do
pid=${line#/proc/}; pid=${pid%/cmdline}
[ "$pid" = $$ ] || { grep -qaF -- "$1/s" "$line" && kill -KILL "$pid"; }
done 2>/dev/null
for link in "$1"/weights "$1"/p*/weights; do weights=$(readlink "$link") && rm -rf -- "$weights"; done
group=$(readlink "$1/cgroup") && echo 1 >"$group/cgroup.kill"
for i in 1 2 3 4 5 6 7 8; do chmod -R u+rwX -- "$1"; [ -z "$group" ] || find "$group" -depth -type d -exec rmdir {} +
rm -rf -- "$1" && { [ -z "$group" ] || [ ! -e "$group" ]; } && break; sleep 0.2; done 2>/dev/null"""
"""Waits for the end of its input, which comes when the engine ends or is killed.

Then it kills what was started with a session's socket or folder (they begin with s): bubblewrap whose engine is killed in
its first millisecond, before it asked to die with it, would wait for ever (seen). Links in the folder name what a run has
elsewhere: the policy server's weights in shared memory and the sessions' control group. Sessions may still be dying, so the
folder is removed more than once.
"""


@contextmanager
def runtime_folder() -> Iterator[Path]:
    """Yield a new folder below the system's temporary one, short enough for unix sockets (107 bytes), removed by a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="lr-"))
    janitor = subprocess.Popen(
        ["sh", "-c", JANITOR, "longrein-janitor", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    assert janitor.stdin is not None
    try:
        yield folder
    finally:
        janitor.stdin.close()
        janitor.wait()
        remove(folder)  # where the janitor was killed
