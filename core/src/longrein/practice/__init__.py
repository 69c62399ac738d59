"""The practice task set, and a tiny policy that is built on the spot to prove the loop with."""

from longrein.practice.policy import build_policy

__all__ = ["build_policy"]
