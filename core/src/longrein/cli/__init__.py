"""The command line: results on stdout, progress on stderr, exit 0, 1 or 2."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130
"""What typer returns after Ctrl-C, as shells do."""


def main() -> None:
    """Run the command line; errors raised on purpose become one message and their exit code."""
    from longrein.cli.app import app
    from longrein.cli.output import say
    from longrein.errors import LongreinError

    try:
        app(prog_name="longrein")
    except LongreinError as error:
        say(f"longrein: {error}", style="red")
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of our output has gone; nothing is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            say("longrein: interrupted; what was finished is in the run folder", style="yellow")
        raise
