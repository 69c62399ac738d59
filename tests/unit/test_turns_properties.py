"""Random conversation trees: labels and rows hold whatever the agent does."""

from collections import Counter
from itertools import count

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.model import PublicTask
from longrein.testing.exchanges import Exchange, capture, message, prompt_ids, reply_ids, tool_call
from longrein.turns import build_rows, label_calls

TASK = PublicTask("Write solution.py: read two integers from standard input and print their sum.")
TOOLS = ({"type": "function", "function": {"name": "write"}},)
SYSTEM = "You are a coding agent in the folder /work; write what is asked for and stop"


@define
class Scene:
    """Writes a session, one conversation at a time, together with the labels that are right for it."""

    draw: st.DrawFn
    conversations: list[list[Exchange]] = field(factory=list)
    right: dict[str, str] = field(factory=dict)
    numbers: count = field(factory=count)
    current: list[Exchange] = field(factory=list)
    tools: tuple = ()

    def chance(self, text):
        """Draw a yes or no."""
        return self.draw(st.booleans(), label=text)

    def begin(self):
        """Open a new conversation."""
        self.current = []
        self.conversations.append(self.current)

    def reply(self, *, thinking=False, again=None):
        """Return a new reply, or the one numbered `again`, and what an agent that drops thinking keeps of it."""
        n = next(self.numbers) if again is None else again
        if self.tools and self.chance("tool call"):
            said = tool_call("write", path=f"file{n}.py", content=f"print({n})")
            return said, said
        kept = message("assistant", f"Step {n} is done as asked, on to the next one.")
        return (message("assistant", f"<think>About {n}.</think>{kept['content']}") if thinking else kept), kept

    def ask(self, messages, reply, label, **call):
        """Add an exchange."""
        name = f"c{next(self.numbers)}"
        self.current.append(Exchange(name, tuple(messages), reply, self.tools, call))
        self.right[name] = label

    def retries(self, messages):
        """Ask the same a few times before the reply that will be kept."""
        for _ in range(self.draw(st.integers(0, 2), label="retries")):
            kind = self.draw(st.sampled_from(["unused", "gone", "failed"]))
            extra = {"gone": {"delivered": False}, "failed": {"error": "HTTP 500"}, "unused": {}}[kind]
            self.ask(messages, self.reply()[0], "discarded", **extra)

    def side_call(self, history):
        """A title or commit-message call, perhaps repeated."""
        conversation, self.tools, kept = self.current, (), self.tools
        self.begin()
        n = next(self.numbers)
        system = message("system", f"You write titles number {n}. Answer with one line and nothing else, no markdown at all.")
        about = "\n".join(m["content"] for m in history[1:]) if self.chance("transcript") else TASK.prompt
        asked = [system, message("user", f"Title for item {n}:\n{about}")]
        for last in [False, True] if self.chance("repeated") else [True]:
            self.ask(asked, message("assistant", f"Title {last}"), "aux" if last else "discarded")
        self.current, self.tools = conversation, kept

    def late_retry(self, messages):
        """Ask again what was answered, and drop the answer: the conversation goes on from the first."""
        self.ask(messages, self.reply()[0], "discarded")

    def branch(self, history):
        """Fork a helper from the agent's own tokens; it takes two turns while the agent waits."""
        history = [*history, message("user", f"Helper {next(self.numbers)}: look at one part and report.")]
        for _ in range(2):
            self.retries(history)
            reply, _ = self.reply()
            self.ask(history, reply, "train")
            answer = message("tool" if reply.get("tool_calls") else "user", f"result {next(self.numbers)}")
            history = [*history, reply, answer]

    def abandoned(self, history):
        """A reply that the agent drops to ask otherwise."""
        self.ask(history, self.reply()[0], "discarded")
        return [*history, message("user", f"Please answer in the right format, attempt {next(self.numbers)}.")]

    def compact(self, history):
        """Ask for a summary, within the conversation or with a system prompt of its own, then start anew from it."""
        summary = message("assistant", f"Summary {next(self.numbers)}: the file was written, the tests are left to do.")
        system = message("system", "You summarise conversations in the format that the user asks for.")
        within = self.chance("within")
        self.ask([history[0] if within else system, *history[1:], message("user", "Summarise all of the above.")], summary, "aux")
        if self.chance("as the assistant's"):
            return [history[0], message("user", "What did we do so far?"), summary, message("user", "Continue.")]
        return [history[0], message("user", f"Continue from this summary.\n{summary['content']}\n{TASK.prompt}")]

    def converse(self, history, n_turns, *, rewrites):
        """Let an agent take turns."""
        said = 0
        for last in [False] * (n_turns - 1) + [True]:
            if rewrites and said and self.chance("compaction"):
                history, said = self.compact(history), 0
            if self.chance("side call"):
                self.side_call(history)
            if self.chance("abandoned"):
                history = self.abandoned(history)
            self.retries(history)
            reply, kept = self.reply(thinking=rewrites, again=1000 if self.chance("repeats itself") else None)
            self.ask(history, reply, "train")
            asked, said = history, said + 1
            answer = message("tool" if reply.get("tool_calls") else "user", f"result {next(self.numbers)}")
            history = [*history, kept if rewrites and self.chance("thinking dropped") else reply, answer]
            if not last and self.chance("late retry"):
                self.late_retry(asked)
            if not last and self.chance("branch"):
                self.branch(history)


@st.composite
def scenes(draw):
    """Draw a session with a main conversation, sub-agents and side calls."""
    scene = Scene(draw)
    scene.tools = TOOLS if scene.chance("tools") else ()
    scene.begin()
    scene.converse([message("system", SYSTEM), message("user", TASK.prompt)], draw(st.integers(1, 5)), rewrites=scene.chance("rewrites"))
    for _ in range(draw(st.integers(0, 2), label="sub-agents")):  # nothing but their going on shows what they are
        scene.begin()
        n = next(scene.numbers)
        system = message("system", f"You search files, helper {n}. Report what you find.")
        scene.converse([system, message("user", f"Find all that belongs to item {n}.")], draw(st.integers(2, 3)), rewrites=False)
    return scene


@st.composite
def merged(draw, conversations):
    """Draw an order in time that keeps each conversation's own."""
    left = [list(c) for c in conversations]
    order = []
    while any(left):
        order.append(draw(st.sampled_from([c for c in left if c])).pop(0))
    return order


def label(exchanges):
    trace = capture(exchanges)
    return label_calls(trace.calls, trace.tools, task=TASK)


@given(st.data())
@settings(max_examples=100)
def test_labels_are_right_in_whatever_order_conversations_arrive(data):
    scene = data.draw(scenes())
    for _ in range(2):
        got = label(data.draw(merged(scene.conversations)))
        assert {turn.call.id: turn.label.label for turn in got} == scene.right
        assert all(turn.label.reason and turn.decided_by in ("structure", "capture") for turn in got)


@given(st.data())
@settings(max_examples=100)
def test_rows_train_each_sampled_token_once_behind_its_own_prefix(data):
    exchanges = data.draw(merged(data.draw(scenes()).conversations))
    budget = data.draw(st.none() | st.integers(20, 400), label="budget")
    found = build_rows(label(exchanges), rollout_id="r", agent="a", token_budget=budget)

    trained = [turn.call for turn in found.relabelled if turn.label.label == "train"]
    expected = Counter((token, logprob) for call in trained for token, logprob in zip(call.sampled_ids, call.logprobs, strict=True))
    got = Counter()
    by_id = {exchange.id: exchange for exchange in exchanges}
    for row in found.rows:
        last = by_id[row.call_ids[-1]]
        assert row.input_ids == [*prompt_ids(last.messages, last.tools), *reply_ids(last.reply)]
        assert row.n_trained > 0
        assert budget is None or len(row.input_ids) <= budget
        for token, mask, logprob in zip(row.input_ids, row.mask, row.logprobs, strict=True):
            assert mask in (0, 1)
            assert mask or logprob == 0.0
            if mask:
                got[token, logprob] += 1
    assert got == expected


@given(st.data())
@settings(max_examples=50)
def test_the_budget_discards_exactly_the_turns_that_no_row_can_hold(data):
    labelled = label(data.draw(merged(data.draw(scenes()).conversations)))
    budget = data.draw(st.integers(20, 400), label="budget")
    found = build_rows(labelled, rollout_id="r", agent="a", token_budget=budget)
    for before, after in zip(labelled, found.relabelled, strict=True):
        if before.label.label == "train" and before.call.prompt_len + len(before.call.sampled_ids) > budget:
            assert (after.label.label, after.decided_by) == ("discarded", "policy")
            assert after.label.reason.startswith("over_token_budget: ")
        else:
            assert after == before
