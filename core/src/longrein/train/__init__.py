"""Training: the engine process, TRL's trainer, and what goes between them."""

from longrein.train.run import train

__all__ = ["train"]
