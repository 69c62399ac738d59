"""Where an agent's history starts anew from a summary of it."""

from __future__ import annotations

from collections.abc import Container

from attrs import frozen

from longrein.model import ModelCall
from longrein.turns.links import Links
from longrein.turns.quotes import Quotes


@frozen
class Handover:
    """A summary call, the conversations that it heard and the one that starts from it."""

    summary: str
    before: frozenset[int]
    after: int

    def joins(self, agents: Container[int]) -> frozenset[int]:
        """Return the conversations that are the agent's because the other side is."""
        joined = self.before if self.after in agents else frozenset()
        return joined | {self.after} if any(c in agents for c in self.before) else joined


def find_handovers(links: Links, quotes: Quotes) -> list[Handover]:
    """Return the handovers of a session.

    A summary calls no tool and heard what calls with some system prompt said or got from tools, nothing continues it below
    its own question, and its reply stands in a history below that system prompt, ahead of anything that such a call said.
    """
    found = []
    for call in links.calls:
        if links.children.get(call.id) or call.id in links.answered or call.id not in links.reply or call.reply.get("tool_calls"):
            continue
        heard = quotes.heard(call)
        for after in quotes.holders.get(call.id, ()) if heard else ():
            family = links.family[after.id]
            before = {s for s in heard if links.family[s] == family}
            said_ahead = {s for s in _said_ahead(after, call, quotes) if links.family[s] == family}
            if before and not said_ahead:
                found.append(Handover(call.id, frozenset(links.conversation[s] for s in before), links.conversation[after.id]))
    return found


def _said_ahead(call: ModelCall, summary: ModelCall, quotes: Quotes) -> set[str]:
    """Return the calls whose replies `call` holds ahead of the reply of `summary`."""
    said: set[str] = set()
    for speakers in quotes.said_in(call):
        if summary.id in speakers:
            break
        said |= speakers
    return said
