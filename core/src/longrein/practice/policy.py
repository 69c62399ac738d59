"""Build the practice policy once for each set of agents, and find it again."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict

from longrein.practice.exercises import exercises
from longrein.practice.tasks import public_task
from longrein.toolchain import cache_root
from longrein.toolchain.lock import locked
from longrein.toolchain.store import chosen

if TYPE_CHECKING:
    from longrein.plugins import PluginHost
    from longrein.practice.record import Recording
    from longrein.practice.transcripts import Row
    from longrein.serve.template import ChatTemplate

Log = Callable[[str], None]

FORMAT = 2
"""Raised when policies in the cache are no longer what this code would build."""
NAME = "practice"
"""The model's folder, and so the served name."""
OTHER_ROWS = 0.2
"""Share kept of the rows without the program (side calls, reflections): each teaches one sentence."""


def build_policy(agents: Mapping[str, Mapping[str, Any]], *, seed: int = 0, log: Log, host: PluginHost | None = None) -> Path:
    """Return the folder of a practice policy for `agents`; it is built unless it is in the cache.

    Args:
        agents: agent name to its options, as in a config.
        seed: of the weights and the order of training.
        log: gets a line for each step.
        host: the loaded plugins; without it the installed ones.

    Raises:
        ConfigError: the scripted policy cannot drive an agent with these options.
        MissingError: an agent is not installed.
    """
    if host is None:
        from longrein.plugins import PluginHost

        host = PluginHost.load()
    model = policy_folder(agents, host, seed=seed)
    place = model.parent
    place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place.with_suffix(".lock"), lambda: log("practice policy: waiting for another build")):
        if not model.is_dir():
            _build(place, agents, host, seed, log)
    log(f"practice policy: {model}")
    return model


def policy_folder(agents: Mapping[str, Mapping[str, Any]], host: PluginHost, *, seed: int = 0) -> Path:
    """Return where the practice policy for `agents` is, or would be when it were built."""
    return cache_root() / "practice" / _key(agents, host, seed) / NAME


def _key(agents: Mapping[str, Mapping[str, Any]], host: PluginHost, seed: int) -> str:
    """Return a name for what the policy depends on."""
    from longrein.practice.clone import SESSIONS, STATEMENTS

    adapters = {name: host.agent(name, options) for name, options in sorted(agents.items())}
    tasks = [[public_task(exercise).prompt, *map(exercise.candidate, exercise.candidates)] for exercise in exercises()]
    parts = {
        "agents": {name: [asdict(a.options), asdict(chosen(name, a.toolchain)) if a.toolchain else None] for name, a in adapters.items()},
        "launches": [info.name for info in host.plugins if info.active and "longrein_launch_agent" in info.hooks],
        "tasks": tasks,
        "schedules": [asdict(STATEMENTS), asdict(SESSIONS)],
        "seed": seed,
        "format": FORMAT,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _build(place: Path, agents: Mapping[str, Mapping[str, Any]], host: PluginHost, seed: int, log: Log) -> None:
    from transformers.utils.logging import disable_progress_bar

    from longrein.practice import tokenizer as tokenizers
    from longrein.practice.clone import SESSIONS, STATEMENTS, new_model, train
    from longrein.practice.record import record
    from longrein.serve.template import ChatTemplate

    disable_progress_bar()
    recordings = record(agents, host, log=log)
    log("making the tokenizer and the transcripts")
    paragraphs = list(dict.fromkeys(text for recording in recordings for text in tokenizers.paragraphs(recording)))
    tokenizer = tokenizers.build(paragraphs, _corpus(recordings))
    statements, sessions = _rows(ChatTemplate(tokenizer), recordings, random.Random(seed))
    model = new_model(tokenizer, seed=seed)
    log(f"cloning {len(sessions)} transcripts into a model of {model.num_parameters() / 1e6:.1f} million parameters")
    train(model, statements, STATEMENTS, seed=seed, log=lambda line: log(f"cloning (1 of 2): {line}"))
    train(model, sessions, SESSIONS, seed=seed, log=lambda line: log(f"cloning (2 of 2): {line}"))
    for left_over in place.parent.glob(f"{place.name}.*/"):
        shutil.rmtree(left_over)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    try:
        model.save_pretrained(unfinished / NAME)
        tokenizer.save_pretrained(unfinished / NAME)
        unfinished.replace(place)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _corpus(recordings: Sequence[Recording]) -> Iterator[str]:
    """Yield what agents and policy say besides the agents' paragraphs."""
    from longrein.practice.tokenizer import END, renderer, varying_lines
    from longrein.practice.transcripts import check_output, reply_text, session_of
    from longrein.serve.template import ChatTemplate

    template = ChatTemplate(renderer())
    yield from map(str, range(100))
    yield from (line for recording in recordings for line in varying_lines(recording) * 30)
    for exercise in exercises():
        yield public_task(exercise).prompt
        for word in exercise.candidates:
            yield check_output(exercise, word)
            yield from (reply_text(template, x.reply).removesuffix(END) for r in recordings for x in session_of(r, exercise, word))


def _rows(template: ChatTemplate, recordings: Sequence[Recording], rng: random.Random) -> tuple[list[Row], list[Row]]:
    """Return rows of statements and of sessions: every exercise of both splits with each candidate, the right one no more often."""
    from longrein.practice.transcripts import rows_of, session_of, statement_row

    statements, sessions = [], []
    for exercise, recording in itertools.product(exercises(), recordings):
        for word in exercise.candidates:
            session = session_of(recording, exercise, word)
            rows = list(rows_of(template, session))
            main = max(rows, key=lambda row: sum(row.mask))
            statements.append(statement_row(template, session, exercise))
            sessions += [row for row in rows if row is main or rng.random() < OTHER_ROWS]
    rng.shuffle(statements)
    return statements, sessions
