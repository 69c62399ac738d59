"""python -m longrein.serve: see --help."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from longrein.errors import LongreinError
from longrein.serve.app import ServeOptions, serve


def main() -> int:
    """Parse the command line and serve; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m longrein.serve", description="Serve a policy with its tokens and log-probabilities.")
    parser.add_argument("--model", type=Path, required=True, help="folder of a transformers model with its tokenizer")
    parser.add_argument("--name", help="served name; default: the folder's")
    parser.add_argument("--socket", type=Path, help="unix socket to serve on, instead of host and port")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--control", type=Path, help="unix socket for pause, load, resume and status")
    parser.add_argument("--weights", type=Path, help="weights folder of a server that died, to go on from its newest file")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--max-model-len", type=int, help="default: what the model was made for")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of one forward pass")
    parser.add_argument("--exit-with-stdin", action="store_true", help="end when standard input does")
    try:
        serve(ServeOptions(**vars(parser.parse_args())))
    except LongreinError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is closed by now, and taking torch apart keeps whoever waits for seconds.
    os._exit(code)
