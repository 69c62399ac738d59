"""Training rows: every sampled token of a train turn once, behind the exact prefix it was sampled from."""

from __future__ import annotations

from attrs import evolve, frozen

from longrein.model import Row, Trajectory, Turn, TurnLabel

OVER_BUDGET = "over_token_budget"


@frozen
class RowSet:
    """The rows of a trajectory, and the trajectory with the labels that the token budget changed."""

    rows: tuple[Row, ...]
    relabelled: Trajectory


def build_rows(trajectory: Trajectory, *, rollout_id: str, agent: str, token_budget: int | None) -> RowSet:
    """Make the training rows of a labelled trajectory.

    A row is the path from a root to a train turn that no other train turn extends. A train turn that lies on several
    paths is trained in the one that ends in the earliest call and is context in the others. Turns with another label
    are context where a train turn extends them, and in no row otherwise.

    Args:
        trajectory: turns with their final labels.
        rollout_id: written into the rows.
        agent: written into the rows.
        token_budget: longest row in tokens, or None. A row that trains a turn holds the turn's whole prompt, so exactly
            the turns whose prompt and reply together are longer become `discarded: over_token_budget`; the turns
            before them on the path stay.

    Returns:
        The rows, each with at least one trained token, in the order of their last calls, and the trajectory.
    """
    relabelled = within_budget(trajectory, token_budget)
    trained = [turn for turn in relabelled if turn.label.label == "train" and turn.call.sampled_ids]
    extended = _extended(relabelled, trained)
    done: set[str] = set()
    rows = []
    for turn in trained:
        if turn.call.id not in extended:
            rows.append(_row(relabelled.path(turn.call.id), done, rollout_id, agent))
    return RowSet(tuple(rows), relabelled)


def _extended(trajectory: Trajectory, trained: list[Turn]) -> set[str]:
    """Return the ids of all proper ancestors of trained turns."""
    ancestors: set[str] = set()
    for turn in trained:
        parent = turn.call.parent_id
        while parent is not None and parent not in ancestors:
            ancestors.add(parent)
            parent = trajectory.turn(parent).call.parent_id
    return ancestors


def _row(path: list[Turn], done: set[str], rollout_id: str, agent: str) -> Row:
    """Concatenate a path; `done` holds the calls trained in earlier rows and receives those trained here."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    versions = []
    for turn in path:
        call = turn.call
        n_context, n_sampled = len(call.context_ids), len(call.sampled_ids)
        train = turn.label.label == "train" and call.id not in done
        ids += [*call.context_ids, *call.sampled_ids]
        mask += [0] * n_context + [int(train)] * n_sampled
        logprobs += [0.0] * n_context + (list(call.logprobs) if train else [0.0] * n_sampled)
        if train and n_sampled:
            done.add(call.id)
            versions.append(call.version_first)
    return Row(
        rollout_id=rollout_id,
        agent=agent,
        input_ids=ids,
        mask=mask,
        logprobs=logprobs,
        version=min(versions),
        call_ids=tuple(turn.call.id for turn in path),
    )


def within_budget(trajectory: Trajectory, token_budget: int | None) -> Trajectory:
    """Return the trajectory with the train turns discarded that no row within the budget (in tokens, or None) can hold."""
    if token_budget is None:
        return trajectory
    ends = _ends(trajectory)
    turns = []
    for turn in trajectory:
        end = ends[turn.call.id]
        if turn.label.label == "train" and end > token_budget:
            label = TurnLabel("discarded", f"{OVER_BUDGET}: prompt and reply are {end} tokens, the budget is {token_budget}")
            turn = evolve(turn, label=label, decided_by="policy")
        turns.append(turn)
    return evolve(trajectory, turns=tuple(turns))


def _ends(trajectory: Trajectory) -> dict[str, int]:
    """Return the tokens of each call's prompt and reply; a parent may have arrived after its child."""
    ends: dict[str, int] = {}
    for turn in trajectory:
        chain = []
        at: str | None = turn.call.id
        while at is not None and at not in ends:
            chain.append(trajectory.turn(at).call)
            at = chain[-1].parent_id
        for call in reversed(chain):
            before = ends[call.parent_id] if call.parent_id is not None else 0
            ends[call.id] = before + len(call.context_ids) + len(call.sampled_ids)
    return ends
