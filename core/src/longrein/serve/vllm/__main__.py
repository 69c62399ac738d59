"""`python -m longrein.serve.vllm`: see --help."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from longrein.errors import LongreinError
from longrein.serve.vllm.command import Adapters, VllmOptions
from longrein.serve.vllm.keep import keep
from longrein.serve.vllm.toolchain import lend_plugin


def main() -> int:
    """Parse the command line and keep the server; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m longrein.serve.vllm", description="Keep a vLLM server for longrein.")
    parser.add_argument("--python", type=Path, required=True, help="interpreter of the venv that vLLM is installed in")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--name", required=True, help="served name")
    parser.add_argument("--runtime", type=Path, required=True, help="a folder of the run's own")
    parser.add_argument("--cpu", action="store_true", help="it is vLLM's CPU build")
    parser.add_argument("--socket", type=Path, help="unix socket to serve on, instead of host and port")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--tool-call-parser", default="hermes")
    parser.add_argument("--lora", nargs=3, metavar=("RANK", "COUNT", "FOLDER"), help="take adapters, which are written into this folder")
    parser.add_argument("--env", action="append", default=[], metavar="=NAME=VALUE", help="a further variable of vLLM's environment")
    parser.add_argument("--weights", type=Path, help="weights folder of a server that died, to go on from its newest file")
    parser.add_argument("--exit-with-stdin", action="store_true", help="end when standard input does")
    parser.add_argument("--arg", dest="args", action="append", default=[], metavar="=FLAG", help="a further flag of vLLM, or its value")
    given = vars(parser.parse_args())
    kept = {name: given.pop(name) for name in ("weights", "exit_with_stdin")}
    lora, runtime = given.pop("lora"), given.pop("runtime")
    kept["runtime"] = runtime
    adapters = Adapters(int(lora[0]), int(lora[1]), Path(lora[2])) if lora else None
    try:
        with tempfile.TemporaryDirectory(dir=runtime, ignore_cleanup_errors=True) as folder:
            plugins = lend_plugin(Path(folder, "plugins"))
            return keep(VllmOptions(**given, plugins=plugins, tmp=Path(folder), adapters=adapters), **kept)
    except LongreinError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    code = main()
    if code < 0:  # whoever waits sees how vLLM ended
        os.kill(os.getpid(), -code)
    raise SystemExit(abs(code))
