"""Training: the engine process, TRL's trainer, and what goes between them."""

from longrein.training.run import train

__all__ = ["train"]
