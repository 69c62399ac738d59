"""What became of every turn: figures for people, for `--json` and for the trainer."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from longrein.errors import RunStopped
from longrein.model import LABELS, Trajectory, Turn
from longrein.turns import messages as msg
from longrein.turns.history import transitions
from longrein.turns.policy import truncated

WINDOW = 100
MAX_INVALID = 20
"""More invalid turns than this among the last `WINDOW` stop a run."""
_EXCERPT = 200
_REASON = 160


@frozen
class Example:
    """One turn, shortened for a person to judge its label. Untrusted text."""

    call_id: str
    asked: str
    """Tail of the last message of the request."""
    replied: str
    """Head of the reply."""


@frozen
class AuditRow:
    """Turns of one agent with the same label, reason and author; numbers in reasons read N."""

    label: str
    reason: str
    decided_by: str
    turns: int
    tokens: int
    """Sampled tokens."""
    examples: tuple[Example, ...] = ()


@frozen
class AgentAudit:
    """The figures of one agent."""

    agent: str
    turns: int
    tokens: int
    rows: tuple[AuditRow, ...]
    unlabelled: int
    """Turns that no row counts: 0, or the labels cannot be trusted."""
    truncated: int
    """Replies cut by length, whatever their label."""
    transitions: Mapping[str, int] = field(factory=dict)
    """Calls that continued, forked or drifted from an earlier one."""
    transition_tokens: Mapping[str, int] = field(factory=dict)
    """Tokens added by those that continued, shared by those that forked, not repeated by those that drifted."""

    def metrics(self) -> dict[str, float]:
        """Return flat counts: turns/<label>, tokens/<label>, transitions/<kind>, transition_tokens/<kind> and turns/truncated."""
        counts = dict.fromkeys([f"{unit}/{label}" for unit in ("turns", "tokens") for label in LABELS], 0.0)
        for row in self.rows:
            counts[f"turns/{row.label}"] += row.turns
            counts[f"tokens/{row.label}"] += row.tokens
        counts |= {f"transitions/{kind}": float(n) for kind, n in self.transitions.items()}
        counts |= {f"transition_tokens/{kind}": float(n) for kind, n in self.transition_tokens.items()}
        return counts | {"turns/truncated": float(self.truncated)}


@frozen
class Audit:
    """The figures of a run, one entry for each agent in order of appearance."""

    agents: tuple[AgentAudit, ...]


def audit(trajectories: Iterable[tuple[str, Trajectory]], *, examples: int = 0) -> Audit:
    """Count what became of every turn.

    Args:
        trajectories: (agent, trajectory) pairs; read once, one at a time.
        examples: how many turns of each row to show.
    """
    tallies: dict[str, _Tally] = {}
    for agent, trajectory in trajectories:
        tallies.setdefault(agent, _Tally(examples)).add(trajectory)
    return Audit(tuple(tally.result(agent) for agent, tally in tallies.items()))


class InvalidGuard:
    """Stops a run when more than 20 of its last 100 turns are invalid: whatever it trained on then, it would not be the policy's work."""

    def __init__(self) -> None:
        self._recent: deque[str | None] = deque(maxlen=WINDOW)

    def check(self, trajectory: Trajectory) -> None:
        """Count the turns of one more session.

        Raises:
            RunStopped: too many are invalid; the message has the most frequent cause.
        """
        self._recent.extend(turn.label.reason if turn.label.label == "invalid" else None for turn in trajectory)
        causes = Counter(_plain(cause) for cause in self._recent if cause is not None)
        if (n := causes.total()) > MAX_INVALID:
            cause, times = causes.most_common(1)[0]
            raise RunStopped(
                f"{n} of the last {len(self._recent)} turns are invalid (limit {MAX_INVALID} of {WINDOW}); {times} times because: {cause}. "
                f"The policy server's replies cannot be trained; `longrein turns RUN --examples 3` shows them"
            )


class _Tally:
    def __init__(self, n_examples: int) -> None:
        self._n_examples = n_examples
        self._turns, self._tokens = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
        self._examples: dict[tuple[str, str, str], list[Example]] = defaultdict(list)
        self._kinds, self._kind_tokens = (Counter({"continued": 0, "forked": 0, "drifted": 0}) for _ in range(2))
        self._n_turns = self._n_truncated = 0

    def add(self, trajectory: Trajectory) -> None:
        for turn in trajectory:
            key = (turn.label.label, _plain(turn.label.reason), turn.decided_by)
            self._turns[key] += 1
            self._tokens[key] += len(turn.call.sampled_ids)
            self._n_turns += 1
            self._n_truncated += truncated(turn)
            if len(self._examples[key]) < self._n_examples:
                self._examples[key].append(_example(turn, trajectory))
        for transition in transitions(trajectory):
            self._kinds[transition.kind] += 1
            self._kind_tokens[transition.kind] += transition.n_tokens

    def result(self, agent: str) -> AgentAudit:
        order = sorted(self._turns, key=lambda key: (LABELS.index(key[0]), -self._turns[key], key))
        rows = tuple(AuditRow(*key, self._turns[key], self._tokens[key], tuple(self._examples[key])) for key in order)
        counted = sum(row.turns for row in rows if row.label and row.reason and row.decided_by)
        return AgentAudit(
            agent,
            self._n_turns,
            self._tokens.total(),
            rows,
            self._n_turns - counted,
            self._n_truncated,
            dict(self._kinds),
            dict(self._kind_tokens),
        )


def _plain(reason: str) -> str:
    """Return a reason such that turns with the same cause share it."""
    if reason.startswith("no reply from the engine"):
        return reason.partition("\n")[0][:_REASON]
    return re.sub(r"\b\d[\d.]*(e[+-]?\d+)?\b", "N", reason)[:_REASON]


def _example(turn: Turn, trajectory: Trajectory) -> Example:
    asked = trajectory.messages(turn.call.id)[-1:]
    said = msg.text(turn.call.reply) or "; ".join(f"{name} {arguments}" for name, arguments in msg.tool_calls(turn.call.reply))
    return Example(turn.call.id, asked=msg.text(asked[0])[-_EXCERPT:] if asked else "", replied=said[:_EXCERPT])
