"""Who decides a label: capture, then structure, then adapter and plugins, then the policy of the config."""

import pytest
from attrs import evolve

from longrein.config import TurnsConfig
from longrein.model import PublicTask, TurnLabel
from longrein.testing.exchanges import Exchange, capture, message, tool_call
from longrein.turns import audit, label_calls

TASK = PublicTask("Write solution.py: print the larger of two integers.")
TOOLS = ({"type": "function", "function": {"name": "write"}},)
MAIN = [message("system", "You are a coding agent. Write the files that are asked for."), message("user", TASK.prompt)]
WRITE = tool_call("write", path="solution.py", content="print(max(map(int, input().split())))")
CODE = message("assistant", "solution.py\n```\nprint(max(map(int, input().split())))\n```")
WRITTEN = message("tool", "written", tool_call_id="call_1")
DONE = message("assistant", "The file is written and both examples pass.")
SESSION = [Exchange("a1", MAIN, WRITE, TOOLS), Exchange("a2", [*MAIN, WRITE, WRITTEN], DONE, TOOLS)]


def turns(exchanges, **more):
    trace = capture(exchanges)
    return label_calls(trace.calls, trace.tools, task=TASK, **more)


def labels(exchanges, **more):
    return {turn.call.id: turn.label.label for turn in turns(exchanges, **more)}


def test_calls_without_token_ids_are_labelled_by_their_messages():
    title = Exchange("title", [message("system", "You are a title generator."), MAIN[1]], message("assistant", "The larger of two"))
    none = {"context_ids": (), "sampled_ids": (), "logprobs": (), "prompt_len": 0, "parent_id": None}
    bare = [evolve(call, **none) for call in capture([title, *SESSION]).calls]
    got = {turn.call.id: turn.label.label for turn in label_calls(bare, {}, task=TASK)}
    assert got == {"title": "aux", "a1": "train", "a2": "train"}


class TestDecisions:
    """Capture first, then structure, then adapter and plugins, then policy."""

    def test_nobody_overrules_capture(self):
        asked = []

        def decide(turn, trajectory, proposal):
            asked.append(turn.call.id)
            return TurnLabel("train", "mine"), "plugin"

        broken = Exchange(
            "bad",
            [*MAIN, WRITE, {**WRITTEN, "content": "?"}],
            DONE,
            TOOLS,
            {"problem": "6 sampled ids, but usage.completion_tokens is 30"},
        )
        dead = Exchange("dead", [*MAIN, WRITE, {**WRITTEN, "content": "!"}], DONE, TOOLS, {"error": "HTTP 500"})
        result = turns([*SESSION, broken, dead], decide=decide)
        assert asked == ["a1", "a2"]
        assert (result.turn("bad").label, result.turn("bad").decided_by) == (
            TurnLabel("invalid", "6 sampled ids, but usage.completion_tokens is 30"),
            "capture",
        )
        assert result.turn("dead").label.label == "discarded"
        assert result.turn("a1").decided_by == "plugin"

    def test_deciders_see_the_whole_proposal_and_their_answer_is_recorded(self):
        def decide(turn, trajectory, proposal):
            assert trajectory.turn(turn.call.id).label is proposal is turn.label
            return (TurnLabel("aux", "a check"), "agent:x") if turn.call.id == "a2" else (proposal, "structure")

        result = turns(SESSION, decide=decide)
        assert [(t.label.label, t.decided_by) for t in result] == [("train", "structure"), ("aux", "agent:x")]


class TestPolicies:
    """The second step only turns train into context."""

    def test_actions_only_with_tools(self):
        result = turns(SESSION, options=TurnsConfig(policy="actions_only"))
        assert [(t.label.label, t.decided_by) for t in result] == [("train", "structure"), ("context", "policy")]

    @pytest.mark.parametrize(
        ("reply", "label"),
        [
            ("Here it is:\n```python\nprint(1)\n```", "train"),
            ("solution.py\n<<<<<<< SEARCH\n=======\nprint(1)\n>>>>>>> REPLACE", "train"),
            ("*** Begin Patch\n*** End Patch", "train"),
            ("<write_file path='solution.py'>print(1)</write_file>", "train"),
            ("<think>```x```</think>Use sum(), which adds; a < b holds.", "context"),
            ("I would use `sum` here.", "context"),
        ],
    )
    def test_actions_only_without_tools(self, reply, label):
        assert labels([Exchange("a1", MAIN, message("assistant", reply))], options=TurnsConfig(policy="actions_only")) == {"a1": label}

    def test_actions_only_follows_what_an_adapter_knows(self):
        def decide(turn, trajectory, proposal):
            return TurnLabel("train", "an edit", acts=turn.call.id == "a2"), "agent:x"

        assert [t.label.label for t in turns(SESSION, decide=decide, options=TurnsConfig(policy="actions_only"))] == ["context", "train"]

    def test_last_turn_is_that_of_the_main_conversation(self):
        title = Exchange("title", [message("system", "You are a title generator."), MAIN[1]], message("assistant", "The larger of two"))
        sub = [message("system", "You are a searcher."), message("user", "print(max(map(int, input().split())))")]
        late = [Exchange("s1", sub, WRITE), Exchange("s2", [*sub, WRITE, WRITTEN], message("assistant", "Found nothing else."))]
        got = labels([*SESSION, *late, title], options=TurnsConfig(policy="last_turn"))
        assert got == {"a1": "context", "a2": "train", "s1": "context", "s2": "context", "title": "aux"}

    @pytest.mark.parametrize("option", ["train", "context"])
    def test_replies_cut_by_length_are_counted_either_way(self, option):
        cut = turns([Exchange("a1", MAIN, CODE, (), {"finish_reason": "length"})], options=TurnsConfig(truncated=option))
        assert [turn.label.label for turn in cut] == [option]
        assert TurnsConfig().truncated == "train"
        assert audit([("a", cut)]).agents[0].metrics()["turns/truncated"] == 1
