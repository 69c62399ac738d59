"""Export a run: record by record, into a file or folder that is there whole or not at all."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from attrs import define, field

from longrein import config as configs
from longrein.errors import ConfigError, LongreinError, RecordError, UnknownNameError
from longrein.exports.left_out import MISSHAPEN, LeftOut, misshapen
from longrein.model import Rollout
from longrein.rollout.record import each_rollout, file_name, read_lines

Format = Literal["openenv", "atif", "sft"]
FORMATS: tuple[Format, ...] = get_args(Format)

Convert = Callable[[Rollout], Iterator[Mapping[str, Any] | LeftOut]]


@define
class ExportReport:
    """What an export wrote and left out."""

    path: Path
    """The file, or for "atif" the folder with a file for each rollout."""
    rollouts: int = 0
    """Rollouts of which something was written."""
    records: int = 0
    """Traces, documents or examples written."""
    left_out: Counter[str] = field(factory=Counter)
    """Reason to rollouts of which nothing was written."""
    turns_left_out: Counter[str] = field(factory=Counter)
    """Reason to turns that are missing from the rollouts written."""
    damaged: list[str] = field(factory=list)
    """Lines of the record that could not be read, with their number."""
    notes: list[str] = field(factory=list)


def export(run: Path, to: Format, *, out: Path | None = None) -> ExportReport:
    """Write the rollouts of a run in another format.

    Args:
        run: a run folder, or a file of rollouts that `regrade` wrote there.
        to: "openenv" (JSON lines, a `TrainingTrace` each), "atif" (a folder with a document for each rollout) or "sft" (JSON
            lines, a prompt and a completion for each train turn of passed rollouts).
        out: where to; default RUN/openenv.jsonl, RUN/atif or RUN/sft.jsonl.

    Raises:
        UnknownNameError: there is no such format.
        ConfigError: `out` exists, or the run's task set must not be trained on.
        RecordError: the folder holds no run, or nothing of it can be exported; then nothing is written.
    """
    if to not in FORMATS:
        raise UnknownNameError("export format", to, FORMATS)
    folder = run.parent if run.is_file() else run
    path = out or folder / ("atif" if to == "atif" else f"{to}.jsonl")
    if path.exists():
        raise ConfigError(f"{path} exists; choose another --out, or remove it first")
    report, records = ExportReport(path), each_rollout(run)
    convert = _converter(run, folder, to, report)
    partial = path.with_name(f".{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove(partial)
    try:
        if to == "atif":
            partial.mkdir()
            _write(records, convert, report, lambda rollout, data: _write_file(partial / f"{file_name(rollout.id)}.json", data))
        else:
            with partial.open("wb") as file:
                _write(records, convert, report, lambda _, data: file.write(data))
        if not report.records:
            raise RecordError(f"nothing of {run} can be exported to {to}: {_reasons(report)}")
        partial.replace(path)
    finally:
        _remove(partial)
    return report


def _converter(run: Path, folder: Path, to: Format, report: ExportReport) -> Convert:
    if to != "atif":
        _check_training(folder, report)
    if to == "sft":
        from longrein.exports.sft import examples

        return examples
    # A training run's final rewards are those of its groups; a regrade has computed its own.
    groups = () if run.is_file() else read_lines(folder / "groups.jsonl")
    rewards = {rollout: value for group in groups for rollout, value in group["rewards"].items()}

    def reward(rollout: Rollout) -> float | None:
        value: float | None = rewards.get(rollout.id, rollout.reward.value)
        return value

    if to == "openenv":
        from longrein.exports.openenv import trace
        from longrein.rollout.policy import need_extra

        need_extra("run", "openenv")
        return lambda rollout: trace(rollout, reward=reward(rollout))
    from longrein.exports.atif import trajectory

    model = _model(folder)
    return lambda rollout: trajectory(rollout, reward=reward(rollout), model=model)


def _check_training(folder: Path, report: ExportReport) -> None:
    """Refuse what longrein itself would not train on; the plugins that a run's config names are not loaded for it."""
    from longrein.plugins import PluginHost
    from longrein.rollout.tasks import open_taskset

    try:
        config = configs.load(folder / "config.toml")
        host = PluginHost.load()
        refused = next(
            filter(None, (open_taskset(source, host).training_refused for source in configs.task_sources(config).values())), None
        )
    except (LongreinError, OSError) as error:
        report.notes.append(f"whether the tasks may be trained on is not known here: {error}")
        return
    if refused:
        raise ConfigError(f"cannot be exported for training: {refused}")


def _model(folder: Path) -> str | None:
    try:
        values = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
        return Path(values["policy"]["model"]).name
    except (OSError, ValueError, LookupError, TypeError):  # a record without its config
        return None


def _write(
    records: Iterator[Rollout | RecordError],
    convert: Convert,
    report: ExportReport,
    put: Callable[[Rollout, bytes], object],
) -> None:
    for rollout in records:
        if isinstance(rollout, RecordError):
            report.damaged.append(str(rollout))
            continue
        n_before, whole, turns = report.records, "nothing in it can be exported", Counter[str]()
        try:
            for made in convert(rollout):
                data = made if isinstance(made, LeftOut) else _encode(made)
                if isinstance(data, bytes):
                    put(rollout, data)
                    report.records += 1
                elif data.what == "turn":
                    turns[data.reason] += 1
                else:
                    whole = data.reason
        except MISSHAPEN as error:
            turns[misshapen(error)] += 1
        if report.records > n_before:
            report.rollouts += 1
            report.turns_left_out += turns
        else:
            report.left_out[next(iter(turns), whole)] += 1


def _encode(value: Mapping[str, Any]) -> bytes | LeftOut:
    """Return a line of JSON that every reader takes: no NaN, and no halves of characters, which Python lets pass."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as error:
        return LeftOut(f"JSON has no form for it: {error}", "turn")
    return f"{text}\n".encode("utf-8", "replace")


def _write_file(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise RecordError(f"another rollout is written as {path.name} already") from None


def _reasons(report: ExportReport) -> str:
    parts = [f"{n} {reason}" for reason, n in report.left_out.most_common()]
    return "; ".join([*parts, *report.damaged[:3]]) or "it holds no finished rollout"


def _remove(partial: Path) -> None:
    if partial.is_dir():
        shutil.rmtree(partial)
    else:
        partial.unlink(missing_ok=True)
