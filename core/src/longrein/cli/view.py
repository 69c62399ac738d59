"""`longrein view`: the report of a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def view(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A folder of run, compare or train.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; default report.html in the run folder.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A model folder whose tokenizer gives the texts of tokens.")] = None,
    show: Annotated[bool | None, typer.Option("--open/--no-open", help="Open it in a browser; default on a desktop's terminal.")] = None,
) -> None:
    """Write one HTML file with the figures, plots and every trace of a run, and open it."""
    from longrein.cli.output import say
    from longrein.report import write_report
    from longrein.rollout.policy import need_extra

    need_extra("run", "jinja2", "scipy")
    path = write_report(folder, out, tokenizer=tokenizer)
    if show if show is not None else _on_a_desktop():
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")


def _on_a_desktop() -> bool:
    """True where a window can be shown; elsewhere `webbrowser` may start a browser that takes over the terminal."""
    return sys.stdout.isatty() and any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
