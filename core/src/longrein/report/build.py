"""Reads a run folder, one rollout at a time, and writes its page."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from longrein.comparison import compare_rollouts, read_comparison
from longrein.errors import RecordError, nearest
from longrein.model import Rollout
from longrein.report import page
from longrein.report.overview import overview, read_config
from longrein.report.store import Store, pack, to_json
from longrein.report.tokens import find_tokenizer, token_texts
from longrein.report.trace import Evidence, Traces
from longrein.rollout.record import read_lines, read_rollouts, read_tasks, read_workspace, workspace_archive
from longrein.rollout.summary import Cell

NAME = "report.html"


def write_report(folder: Path, out: Path | None = None, *, tokenizer: Path | None = None) -> Path:
    """Write the page of a run, comparison or training run and return its path.

    The page is one file that loads nothing else. It can be made while a run goes on, and shows what is finished.

    Args:
        folder: a run folder.
        out: the file to write; default report.html in the run folder.
        tokenizer: a folder with a tokenizer.json for the texts of tokens; default the run's own policy, where it is at hand.

    Raises:
        RecordError: the folder holds no run, or a record is damaged or of another schema version.
        MissingError: token texts were asked for and cannot be had.
    """
    _check(folder)
    path = out or folder / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    head, tail = page.shell(f"{folder.resolve().name} · longrein")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        file.write(head)
        store = Store(lambda packed: file.write(page.block(packed)))
        index = _Build(folder, store).index(tokenizer)
        file.write(page.block(pack(to_json(index)), name="index"))
        file.write(tail)
    partial.replace(path)
    return path


class _Build:
    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._traces = Traces(store, folder)
        self._tasks = read_tasks(folder)
        self._groups = list(read_lines(folder / "groups.jsonl"))
        self._group_of = {rollout: group for group in self._groups for rollout in group["rewards"]}
        self._lines: list[dict[str, Any]] = []
        self._cells: list[Cell] = []

    def index(self, tokenizer: Path | None) -> dict[str, Any]:
        known = read_comparison(self._folder) if (self._folder / "comparison.json").exists() else None
        order: dict[str, Any] = {"agents": known.agents, "policies": known.policies} if known else {}
        comparison = compare_rollouts(self._rollouts(), **order)
        facts = overview(self._folder, comparison, self._cells, self._groups)
        vocabulary = self._store.put(self._texts(tokenizer))
        self._store.flush()
        return {"overview": facts, "rollouts": self._lines, "vocabulary": vocabulary, "firsts": self._store.firsts}

    def _rollouts(self) -> Iterator[Rollout]:
        """Yield each rollout of the folder when it is in the page."""
        if not (self._folder / "rollouts.jsonl").is_file():
            return
        for rollout in read_rollouts(self._folder):
            self._lines.append(self._traces.add(rollout, self._evidence(rollout)))
            self._cells.append(Cell.of(rollout))
            yield rollout

    def _evidence(self, rollout: Rollout) -> Evidence:
        return Evidence(
            task=self._tasks.get((rollout.taskset, rollout.task_id, rollout.task_digest)),
            workspace=self._workspace(rollout.id),
            archive=f"{self._folder.name}/{workspace_archive(Path(), rollout.id)}",
            group=self._group_of.get(rollout.id),
        )

    def _workspace(self, rollout_id: str) -> Mapping[str, bytes] | None:
        try:
            return read_workspace(self._folder, rollout_id)
        except (OSError, zipfile.BadZipFile):  # removed by a person to save space: the rest of the record stands
            return None

    def _texts(self, tokenizer: Path | None) -> dict[str, str] | None:
        if tokenizer is not None and not (tokenizer / "tokenizer.json").is_file():
            raise RecordError(f"{tokenizer} holds no tokenizer.json; give the folder of the policy's model, or leave --tokenizer out")
        if not self._traces.token_ids:
            return None
        file = tokenizer / "tokenizer.json" if tokenizer else find_tokenizer(self._folder, read_config(self._folder))
        return None if file is None else {str(token): text for token, text in token_texts(file, self._traces.token_ids).items()}


def _check(folder: Path) -> None:
    if any((folder / name).is_file() for name in ("rollouts.jsonl", "config.toml")):
        return
    siblings = [path.parent.name for path in folder.parent.glob("*/rollouts.jsonl")] if folder.parent.is_dir() else []
    known = f"; runs beside it: {', '.join(sorted(siblings)[:10])}{nearest(folder.name, siblings)}" if siblings else ""
    what = "holds no run: there is no rollouts.jsonl" if folder.exists() else "does not exist"
    raise RecordError(f"{folder} {what}{known}. Give the folder that run, compare or train named when it ended")
