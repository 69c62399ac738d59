"""A summary that a history starts from, and the agent's own last words before it."""

import pytest

from longrein.model import PublicTask
from longrein.testing.exchanges import Exchange, capture, message, tool_call
from longrein.turns import label_calls

TASK = PublicTask("Write solution.py: read a line from standard input and print it backwards.")
SYSTEM = message("system", "You are a coding agent. Work in the folder /work and write the files that are asked for.")
SUMMARISE = message("system", "You are a helpful AI assistant tasked with summarizing conversations.")
TOOLS = ({"type": "function", "function": {"name": "write"}},)
ASKED = [SYSTEM, message("user", TASK.prompt)]
READ = tool_call("read", path="examples/1.in")
CONTENT = message("tool", "abc, and nothing else stands in this file", tool_call_id="call_1")
WRITE = {
    **tool_call("write", path="solution.py", content="print(input()[::-1])"),
    "content": "I write the whole program now and run it then.",
}
WRITTEN = message("tool", "written to solution.py", tool_call_id="call_1")
SUMMARY = message("assistant", "## Goal\nA program that prints a line backwards.\n## Done\nIt is written; the examples are left to run.")
TOLD = message("user", f"This session goes on from an earlier one.\n{SUMMARY['content']}")
DONE = message("assistant", "The program is written and the example passes.")


@pytest.mark.parametrize("kept", [[TOLD], [TOLD, WRITE, WRITTEN], [WRITE, WRITTEN, TOLD]], ids=["none", "below", "above"])
def test_a_call_of_a_tool_is_never_the_summary(kept):
    """Agents keep the end of the old history beside its summary; what they did last is their work all the same."""
    heard = [ASKED[1], READ, CONTENT, WRITE, WRITTEN]
    anew = [SYSTEM, *kept]
    run = tool_call("bash", command="python3 solution.py")
    trace = capture(
        [
            Exchange("a1", ASKED, READ, TOOLS),
            Exchange("a2", [*ASKED, READ, CONTENT], WRITE, TOOLS),
            Exchange("s1", [SUMMARISE, *heard, message("user", "Summarise.")], SUMMARY),
            Exchange("a3", anew, run, TOOLS),
            Exchange("a4", [*anew, run, message("tool", "cba", tool_call_id="call_1")], DONE, TOOLS),
        ]
    )
    labels = {turn.call.id: turn.label.label for turn in label_calls(trace.calls, trace.tools, task=TASK)}
    assert labels == {"a1": "train", "a2": "train", "s1": "aux", "a3": "train", "a4": "train"}
