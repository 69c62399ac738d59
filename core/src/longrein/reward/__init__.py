"""Rewards by name: a rollout in, a number or None out."""

from longrein.reward.base import RewardFunction

__all__ = ["RewardFunction"]
