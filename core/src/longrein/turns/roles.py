"""Which conversations of a session are the agent's work, and why.

Whether a request has tools is no evidence: Aider never sends any, and some side calls do. The rules, in order:

1. The *main* conversation holds the task's text. Among several it is, in this order, one that goes on, that is not asked
   with what another one said, whose replies act, that goes on for longest, that is asked with little but the task.
2. A conversation with the agent's kind of system prompt is the same work with a rewritten history (compaction, restart)
   when it opens like the agent's, holds the task below a system prompt, or a summary of the one begins the other.
3. A conversation whose request is a text the agent sampled, or whose reply came back as the agent's tool result, is a
   sub-agent's.
4. Any other conversation that goes on is agent work of its own.

All others are side calls: titles, commit messages, classifiers, summaries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from longrein.model import ModelCall, PublicTask
from longrein.turns import messages as msg
from longrein.turns.acts import acts
from longrein.turns.handover import find_handovers
from longrein.turns.links import Links
from longrein.turns.quotes import Quotes

_HEAD = 200
"""Characters of the task that must be found: agents add to a prompt and cut it."""

MAIN = "agent conversation"
ANEW = "agent conversation with a rewritten history"
SPAWNED = "sub-agent: its request is what the agent said"
RETURNED = "sub-agent: its reply came back to the agent as a tool result"
OWN = "a conversation of its own that went on"


class Roles:
    """`why` holds the reason for each conversation that is the agent's work; `summaries` the calls that fed a rewritten history."""

    def __init__(self, links: Links, task: PublicTask) -> None:
        self._links = links
        self._quotes = Quotes(links)
        self._head = msg.flat(task.prompt)[:_HEAD]
        asking = ((n, m) for n, m in enumerate(links.messages) if msg.role(m) in ("system", "user"))
        self._task = {n for n, m in asking if self._head and self._head in msg.flat(msg.text(m))}
        self._members: dict[int, list[ModelCall]] = defaultdict(list)
        for call in links.calls:
            self._members[links.conversation[call.id]].append(call)
        self._handovers = find_handovers(links, self._quotes)
        self.why: dict[int, str] = {}
        if self._members:
            self.why[self._main()] = MAIN
        while found := self._more():
            self.why.update(found)
        self.summaries = {h.summary for h in self._handovers if h.after in self.why}
        self.summarised = {source for call in links.calls if call.id in self.summaries for source in self._quotes.heard(call)}
        """Calls whose replies a summary was made of: the agent's history went on with them."""

    def came_back(self, call: ModelCall) -> bool:
        """Return whether a tool result is mostly this reply."""
        return bool(self._quotes.results.get(call.id))

    def aux_reason(self, call: ModelCall) -> str:
        """Say what kind of side call this is."""
        if self._by_agent(self._quotes.heard(call)):
            return "side call about the agent's work; nothing went on from it"
        if self._holds_task([call]):
            return "side call about the task; nothing went on from it"
        return "side call without the task or the agent's work; nothing went on from it"

    def _main(self) -> int:
        candidates = [c for c, members in self._members.items() if self._holds_task(members)] or list(self._members)
        if len(candidates) == 1:
            return candidates[0]

        def rank(conversation: int) -> tuple[bool, bool, bool, int, float, str]:
            members = self._members[conversation]
            n_used = self._n_used(conversation)
            return (
                n_used > 0,
                not self._derived(conversation),
                any(acts(call) for call in members),
                n_used,
                max(self._share_of_task(call) for call in members),
                # Decides nothing but makes equals come out the same whatever arrived first.
                min(f"{self._links.system[call.id]}{call.context_ids}" for call in members),
            )

        return max(candidates, key=rank)

    def _derived(self, conversation: int) -> bool:
        """Return whether a conversation was asked something that another one said."""
        members = self._members[conversation]
        said = {s for call in members for s in self._quotes.sources(call) | self._quotes.told(call)}
        return any(self._links.conversation[source] != conversation for source in said)

    def _more(self) -> dict[int, str]:
        """Return further conversations of the agent by the first rule that finds any."""
        families = {self._family(c) for c, reason in self.why.items() if reason in (MAIN, ANEW)}
        openings = {self._opening(call) for c in self.why for call in self._members[c]}
        rewritten = {c for h in self._handovers for c in h.joins(self.why)}
        rules: tuple[tuple[str, Callable[[int], bool]], ...] = (
            (ANEW, lambda c: c in rewritten or (self._family(c) in families and self._resumes(c, openings))),
            (SPAWNED, lambda c: self._by_agent({s for call in self._members[c] for s in self._quotes.sources(call)})),
            (RETURNED, lambda c: any(self._returned_to_agent(call) for call in self._members[c])),
            (OWN, lambda c: self._n_used(c) > 0),
        )
        others = [c for c in self._members if c not in self.why]
        for reason, holds in rules:
            if found := {c: reason for c in others if holds(c)}:
                return found
        return {}

    def _resumes(self, conversation: int, openings: set[int | None]) -> bool:
        members = self._members[conversation]
        if any(self._opening(call) in openings for call in members):
            return True
        return any(self._links.system[call.id] for call in members) and self._holds_task(members)

    def _opening(self, call: ModelCall) -> int | None:
        return next(iter(self._links.history[call.id]), None)

    def _returned_to_agent(self, call: ModelCall) -> bool:
        results = self._quotes.results.get(call.id, set())
        return any(
            self._links.conversation[other.id] in self.why and not results.isdisjoint(self._links.heard[other.id])
            for other in self._links.calls
        )

    def _n_used(self, conversation: int) -> int:
        # A later summary hears the earlier ones: that those stand there is no sign that they went on.
        summaries = {h.summary for h in self._handovers}
        return sum(self._links.used(call.id) and call.id not in summaries for call in self._members[conversation])

    def _share_of_task(self, call: ModelCall) -> float:
        """Return how much of the text that a call was asked with as a user is the task's."""
        asked = [n for n in self._links.history[call.id] if msg.role(self._links.messages[n]) == "user"]
        length = sum(len(msg.flat(msg.text(self._links.messages[n]))) for n in asked)
        return len(self._head) / length if length and not self._task.isdisjoint(asked) else 0.0

    def _by_agent(self, calls: set[str]) -> bool:
        return any(self._links.conversation[source] in self.why for source in calls)

    def _holds_task(self, members: list[ModelCall]) -> bool:
        return any(not self._task.isdisjoint(self._links.heard[call.id]) for call in members)

    def _family(self, conversation: int) -> int:
        return self._links.family[self._members[conversation][0].id]
