"""The structural proposal for each call, from the graph, the messages and the task alone."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from longrein.model import ModelCall, PublicTask, TurnLabel
from longrein.turns.links import Links
from longrein.turns.roles import ANEW, MAIN, Roles


@frozen
class Proposal:
    """The structural label of a call; `main` is true for the conversation that the session is about."""

    label: TurnLabel
    main: bool


def propose(calls: Sequence[ModelCall], task: PublicTask) -> dict[str, Proposal]:
    """Return by call id a proposal for each call that the engine answered and that can be trained.

    Of calls that ask the same, the one whose reply was delivered and went on (else the last delivered) is kept, the others
    are discarded, and so are replies that the conversation went on beside. The rest is train where `Roles` finds the
    agent's work, and aux elsewhere. No rule looks at the order in which calls of different conversations arrived.
    """
    links = Links(calls)
    roles = Roles(links, task)
    sound = [call for call in calls if call.problem is None and call.error is None]
    same: dict[int, list[ModelCall]] = {}
    for call in sound:
        same.setdefault(links.question[call.id], []).append(call)
    return {
        call.id: Proposal(
            _label(call, same[links.question[call.id]], links, roles),
            main=roles.why.get(links.conversation[call.id]) in (MAIN, ANEW),
        )
        for call in sound
    }


def _label(call: ModelCall, same: list[ModelCall], links: Links, roles: Roles) -> TurnLabel:
    if not call.delivered:
        return TurnLabel("discarded", "the client had gone before the reply was handed over")
    if not _kept(call, same, links, roles):
        return TurnLabel("discarded", "retry: another reply to the same prompt was kept")
    if call.id in roles.summaries:
        return TurnLabel("aux", "summary that a rewritten history starts from")
    why = roles.why.get(links.conversation[call.id])
    if why is None:
        return TurnLabel("aux", roles.aux_reason(call))
    if _abandoned(call, links, roles):
        return TurnLabel("discarded", "abandoned: the agent asked again or went on beside this reply")
    if not call.sampled_ids and call.id not in links.reply:
        return TurnLabel("context", f"{why}; the reply is empty")
    return TurnLabel("train", f"{why}; " + ("it went on" if links.used(call.id) else "it ended with this reply"))


def _kept(call: ModelCall, same: list[ModelCall], links: Links, roles: Roles) -> bool:
    """Return whether a delivered call is the one to keep among those that ask the same."""
    if len(same) == 1:
        return True
    went_on = {_said(c, links) for c in same if links.used(c.id) or roles.came_back(c) or c.id in roles.summarised}
    delivered = [c for c in same if c.delivered]
    if not any(_said(c, links) in went_on for c in delivered):
        return call is delivered[-1]
    if _said(call, links) not in went_on:
        return False
    # Of twins that said the same, the graph names one as the parent of what followed.
    return call is max((c for c in delivered if _said(c, links) == _said(call, links)), key=lambda c: (c.id in links.children, c.index))


def _said(call: ModelCall, links: Links) -> tuple[tuple[int, ...], int | None]:
    return tuple(call.sampled_ids), links.reply.get(call.id)


def _abandoned(call: ModelCall, links: Links, roles: Roles) -> bool:
    """Return whether nothing went on from a reply while the agent, later, asked again or went on beside it."""
    if links.used(call.id) or roles.came_back(call):
        return False
    if call.id in links.asked_again:
        return True
    before = links.before[call.id]
    beside = (o for o in links.after.get(before, ()) if links.question[o] != links.question[call.id]) if before is not None else ()
    return any(links.went_on_after(other, call.index) for other in beside)
