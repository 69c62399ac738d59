"""Environment classes in the style of TRL's documentation; nothing of longrein is in them."""

from __future__ import annotations

import time


class GuessEnv:
    """One number of three, hidden by the row's seed."""

    def __init__(self) -> None:
        self.reward = 0.0

    def reset(self, **kwargs: object) -> str | None:
        """Begin an episode."""
        self.secret = int(str(kwargs["seed"])) % 3
        self.reward = 0.0
        return " The number is between 0 and 2."

    def guess(self, number: int) -> str:
        """
        Guess the number.

        Args:
            number: The number to guess.

        Returns:
            Whether it was right.
        """
        if number > 2:
            raise ValueError("the number is below 3")
        self.reward = float(number == self.secret)
        return "right" if self.reward else "wrong"


class Judged(GuessEnv):
    """The environment owns its reward, and it takes a while."""

    takes_s = 0.05

    def get_reward(self) -> float:
        """Score the episode."""
        time.sleep(self.takes_s)
        return self.reward


class Slow(Judged):
    """Its reward does not come within the limit of the test."""

    takes_s = 1.5


class Unclean(GuessEnv):
    """Counts on where a reset should begin anew."""

    n_resets = 0

    def reset(self, **kwargs: object) -> str | None:
        """Begin an episode, but not like the one before."""
        super().reset(**kwargs)
        self.n_resets += 1
        return f"Reset {self.n_resets}."


class Lost(GuessEnv):
    """A class around a client whose server has gone."""

    def guess(self, number: int) -> str:
        """
        Guess the number.

        Args:
            number: The number to guess.
        """
        raise ConnectionError("connection refused")


class Stuck(GuessEnv):
    """A tool that takes longer than the test allows."""

    def guess(self, number: int) -> str:
        """
        Guess the number.

        Args:
            number: The number to guess.
        """
        time.sleep(1)
        return super().guess(number)


class Unhinted(GuessEnv):
    """A tool without a docstring."""

    def guess(self, number):  # type: ignore[no-untyped-def]
        return number


class Tempting(GuessEnv):
    """A reward that would be a tool."""

    def reward(self) -> float:  # type: ignore[override]
        """Return the reward."""
        return 1.0
