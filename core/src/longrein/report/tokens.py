"""Texts of the tokens in a page. A record holds ids; their texts are known where the policy's tokenizer is at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longrein.errors import LongreinError, MissingError

if TYPE_CHECKING:
    from longrein.config import Config

FILE = "tokenizer.json"
LONGEST = 400
"""Characters of one token's text: the practice policy has whole lines as one token."""


def find_tokenizer(folder: Path, config: Config | None) -> Path | None:
    """Return the tokenizer.json of a run's policy; None when it is not on this machine, or when the run has several policies.

    Args:
        folder: the run folder; a training run has its model there.
        config: the run's config.
    """
    if config is not None and config.compare.checkpoints:  # each may have a tokenizer of its own
        return None
    places = [folder / "model"]
    if config is not None and config.policy.url is None:
        places.append(_built(config) or Path(config.policy.model))
    return next((place / FILE for place in places if (place / FILE).is_file()), None)


def _built(config: Config) -> Path | None:
    from longrein.plugins import PluginHost
    from longrein.rollout.policy import built_folder

    try:
        return built_folder(config, PluginHost.load(config.plugins.use))
    except LongreinError:  # an agent of the run is not installed here: its tokens stay numbers
        return Path("absent")


def token_texts(file: Path, ids: Iterable[int]) -> Mapping[int, str]:
    """Return the text of each id; a token that is part of a character has its raw name.

    Args:
        file: a tokenizer.json.
        ids: token ids.

    Raises:
        MissingError: the library that reads the file is not installed.
    """
    decode = _decoder(file)
    return {token: text for token in ids if (text := decode(token)) is not None}


def _decoder(file: Path) -> Callable[[int], str | None]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingError("token texts need tokenizers; run: pip install 'longrein[train]'") from error
    tokenizer: Any = Tokenizer.from_file(str(file))

    def decode(token: int) -> str | None:
        name: str | None = tokenizer.id_to_token(token)
        text: str = tokenizer.decode([token], skip_special_tokens=False)
        whole = text if text and "\ufffd" not in text else name
        return whole if whole is None or len(whole) <= LONGEST else f"{whole[:LONGEST]}…"

    return decode
