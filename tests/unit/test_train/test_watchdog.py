"""What hangs is named once it has lasted, named again only later, and a server that is gone ends the run."""

import queue
from types import SimpleNamespace

import pytest

from longrein.errors import RunStopped
from longrein.model import Row
from longrein.training import settings
from longrein.training.buffer import RowBuffer
from longrein.training.messages import GroupDone, TrainRow
from longrein.training.state import TrainState
from longrein.training.watchdog import GONE_AFTER_S, NAMED_AFTER_S, Watchdog


class Watched:
    """A watchdog, its clock and what it said."""

    def __init__(self):
        self.now, self.alive, self.said, self.ended = 100.0, True, [], []
        self.rows = SimpleNamespace(waiting_since=None, full=False)
        self.dog = Watchdog(healthy=lambda: self.alive, rows=self.rows, log=self.said.append, over=self.ended.append, now=lambda: self.now)

    def after(self, seconds):
        """Let time pass, with a look each five seconds."""
        for _ in range(int(seconds / 5)):
            self.now += 5
            self.dog.look()


@pytest.fixture
def watched():
    return Watched()


def test_nothing_is_said_of_a_run_that_goes_on(watched):
    for _ in range(20):
        watched.dog.sync_since = watched.rows.waiting_since = watched.now
        watched.after(NAMED_AFTER_S - 5)
        watched.dog.sync_since = watched.rows.waiting_since = None
        watched.after(5)
    assert (watched.said, watched.ended) == ([], [])


@pytest.mark.parametrize(
    ("what", "hint"),
    [
        ("sync", "lower [limits] max_reply_tokens"),
        ("rows", "more [limits] sessions"),
        ("full", "fewer [limits] sessions"),
        ("server", "see server.log"),
    ],
)
def test_what_hangs_is_named_within_a_minute_with_what_to_change_and_again_only_later(watched, what, hint):
    if what == "sync":
        watched.dog.sync_since = watched.now
    elif what == "rows":
        watched.rows.waiting_since = watched.now
    elif what == "full":
        watched.rows.full = True
    else:
        watched.alive = False
    watched.after(60)
    assert len(watched.said) == 1
    assert hint in watched.said[0]
    watched.after(90)
    assert len(watched.said) == 1
    if what != "server":
        watched.after(60)
        assert len(watched.said) == 2


def test_slow_sessions_are_named_once_and_not_in_every_step(watched):
    for _ in range(5):
        watched.rows.waiting_since = watched.now
        watched.after(60)
        watched.rows.waiting_since = None
        watched.after(10)
    assert len(watched.said) == 1


def test_a_server_that_does_not_come_back_ends_the_run(watched):
    watched.alive = False
    watched.after(GONE_AFTER_S - 20)
    watched.alive = True
    watched.after(10)
    assert watched.ended == []
    watched.alive = False
    watched.after(GONE_AFTER_S + 20)
    assert watched.ended
    assert "has not answered for" in watched.ended[0]


def row(version):
    return TrainRow(Row("r", "a", (1, 2), (0, 1), (0.0, -1.0), version), 1.0, (), ())


def test_rows_that_are_all_too_old_end_the_wait_with_what_to_change():
    buffer = RowBuffer(TrainState(step=0, version=9), rows_per_step=4, max_staleness=1, max_steps=5)
    buffer.add(GroupDone(0, 0, tuple(row(1) for _ in range(70)), drawn=("t", 0)))
    with pytest.raises(RunStopped, match=r"65 rows in a row were too old.*\[train\] max_staleness 1"):
        buffer.get(timeout=1)


def test_the_buffer_says_since_when_the_trainer_waits():
    buffer = RowBuffer(TrainState(), rows_per_step=1, max_staleness=4, max_steps=5)
    with pytest.raises(queue.Empty):
        buffer.get(timeout=0.01)
    since = buffer.waiting_since
    assert since is not None
    with pytest.raises(queue.Empty):
        buffer.get(timeout=0.01)
    assert buffer.waiting_since == since
    buffer.add(GroupDone(0, 0, (row(1),), drawn=("t", 0)))
    assert not buffer.full
    buffer.add(GroupDone(1, 1, (row(1),), drawn=("t", 0)))
    assert buffer.full
    with settings.quiet():
        buffer.get(timeout=1)
    assert buffer.waiting_since is None
