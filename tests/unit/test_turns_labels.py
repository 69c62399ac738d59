"""Labels by structure: sessions in the shapes that real agents make."""

import pytest

from longrein.model import PublicTask
from longrein.testing.exchanges import Exchange, capture, message, reply_ids, tool_call
from longrein.turns import audit, build_rows, label_calls

TASK = PublicTask("Write solution.py: read two integers from standard input and print their sum.")
SYSTEM = message("system", "You are a coding agent. Work in the folder /work and write the files that are asked for. Today is 2026-11-29")
TITLE = message("system", "You are a title generator. You output ONLY a thread title. Nothing else.")
COMMIT = message("system", "You are an expert engineer who writes concise one-line Git commit messages based on the provided diffs.")
SUMMARY = message("system", "Briefly summarize this partial conversation about programming. Start a new paragraph with each topic!")
ASK = message("user", TASK.prompt)
TOOLS = ({"type": "function", "function": {"name": "write"}},)
WRITE = tool_call("write", path="solution.py", content="print(sum(map(int, input().split())))")
CODE = message("assistant", "solution.py\n```\nprint(sum(map(int, input().split())))\n```")
DONE = message("assistant", "The file is written and both examples pass.")


def labels(exchanges, task=TASK, **more):
    trace = capture(exchanges)
    return {turn.call.id: turn.label.label for turn in label_calls(trace.calls, trace.tools, task=task, **more)}


def turns(exchanges, **more):
    trace = capture(exchanges)
    return label_calls(trace.calls, trace.tools, task=TASK, **more)


def user(content):
    return message("user", content)


def tool(content):
    return message("tool", content, tool_call_id="call_1")


MAIN = [SYSTEM, ASK]
OPENCODE = [
    Exchange("a1", MAIN, WRITE, TOOLS),
    Exchange("a2", [*MAIN, WRITE, tool("written")], DONE, TOOLS),
]


def test_an_agent_with_tools_and_a_title_call_in_any_place():
    title = Exchange("title", [TITLE, user("Generate a title for this conversation:"), ASK], message("assistant", "Sum of two integers"))
    for place in range(3):
        assert labels([*OPENCODE[:place], title, *OPENCODE[place:]]) == {"a1": "train", "a2": "train", "title": "aux"}


def test_one_turn_and_a_title_without_any_continuation():
    title = Exchange("title", [TITLE, user("Generate a title for this conversation:"), ASK], message("assistant", "Sum of two integers"))
    main = Exchange("a1", MAIN, CODE)
    assert labels([title, main]) == labels([main, title]) == {"a1": "train", "title": "aux"}


def test_one_turn_whose_prompt_is_mostly_not_the_task():
    title = Exchange("title", [TITLE, user(f"Title: {TASK.prompt}")], message("assistant", "Sum of two integers"))
    assert labels([title, Exchange("a1", aider(ASK), CODE)]) == {"title": "aux", "a1": "train"}


def test_one_turn_that_only_talks_and_a_commit_message_about_it():
    talk = message("assistant", "I would add the two numbers with the function sum.")
    commit = Exchange("c1", [COMMIT, user(f"{TASK.prompt} {talk['content']}")], message("assistant", "docs: say how to add"))
    assert labels([Exchange("a1", aider(ASK), talk), commit]) == {"a1": "train", "c1": "aux"}


def test_a_repeated_title_call_is_counted_once():
    again = [TITLE, user("Generate a title:"), ASK]
    got = labels([Exchange("t1", again, message("assistant", "Sum")), *OPENCODE, Exchange("t2", again, message("assistant", "Add"))])
    assert got == {"t1": "discarded", "a1": "train", "a2": "train", "t2": "aux"}


@pytest.mark.parametrize("places", [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (0, 2)], ids=str)
def test_a_repeated_title_call_in_any_two_places_is_aux_once_and_trains_nothing(places):
    asked = [TITLE, user("Generate a title for this conversation:"), ASK]
    titles = [Exchange(f"t{n}", asked, message("assistant", said)) for n, said in enumerate(("Sum", "Adding two numbers"))]
    first, second = places
    got = turns([*OPENCODE[:first], titles[0], *OPENCODE[first:second], titles[1], *OPENCODE[second:]])
    assert {turn.call.id: turn.label.label for turn in got} == {"t0": "discarded", "t1": "aux", "a1": "train", "a2": "train"}
    assert audit([("opencode", got)]).agents[0].metrics()["turns/aux"] == 1
    [row] = build_rows(got, rollout_id="r", agent="a", token_budget=None).rows
    assert row.call_ids == ("a1", "a2")
    assert row.n_trained == len(reply_ids(WRITE)) + len(reply_ids(DONE))


@pytest.mark.parametrize("place", range(3))
def test_a_side_call_with_tools_beside_an_agent_without(place):
    """Tools say nothing about whose work a call is."""
    side = Exchange("side", [TITLE, user("Which files matter: a.py, b.py?")], tool_call("choose", file="a.py"), TOOLS)
    main = [Exchange("a1", MAIN, CODE), Exchange("a2", [*MAIN, CODE, user("The test failed: expected 3, got 4. Fix it.")], DONE)]
    assert labels([*main[:place], side, *main[place:]]) == {"side": "aux", "a1": "train", "a2": "train"}


def test_a_failed_edit_that_is_repeated_in_the_next_message_is_the_same_conversation():
    failed = user(f"# 1 SEARCH/REPLACE block failed to match!\n{CODE['content']}\nFix the errors above.")
    got = turns([Exchange("a1", aider(ASK), CODE), Exchange("a2", aider(ASK, CODE, failed), FIX)])
    assert [(turn.label.label, turn.label.reason.partition(";")[0]) for turn in got] == [("train", "agent conversation")] * 2
    assert len(build_rows(got, rollout_id="r", agent="a", token_budget=None).rows) == 1


@pytest.mark.parametrize("system", [[], [SYSTEM]], ids=["no-system", "same-system"])
def test_two_turns_without_tools_and_an_unrelated_side_call(system):
    main = [*system, ASK]
    exchanges = [
        Exchange("a1", main, CODE),
        Exchange("side", [*system, user("Which of these is a fruit: apple, chair?")], message("assistant", "An apple is the only fruit.")),
        Exchange("a2", [*main, CODE, user("The test failed: expected 3, got 4. Fix it.")], DONE),
    ]
    assert labels(exchanges) == {"a1": "train", "side": "aux", "a2": "train"}


def aider(*cur, files="solution.py is empty"):
    ok = message("assistant", "Ok, any changes I propose will be to those files.")
    return [SYSTEM, user(f"I have *added these files to the chat*.\n{files}"), ok, *cur]


FIX = message("assistant", "solution.py\n```\na, b = map(int, input().split())\nprint(a + b)\n```")
DIFF = "# Diffs:\n+print(sum(map(int, input().split())))"


def transcript(*said):
    return user("\n".join(f"{m['role'].upper()}: {m['content']}\n" for m in said) + DIFF)


def test_aider_with_commits_and_a_reflection():
    error = user("1 of 2 tests failed: expected 3, got an exception.")
    committed = user("I committed the changes with git hash 1234567 & commit msg: feat: print the sum of two integers")
    exchanges = [
        Exchange("a1", aider(ASK), CODE),
        Exchange("c1", [COMMIT, transcript(ASK, CODE)], message("assistant", "feat: print the sum of two integers")),
        Exchange("a2", aider(ASK, CODE, committed, message("assistant", "Ok."), error, files="print(sum(...))"), FIX),
        Exchange("c2", [COMMIT, transcript(error, FIX)], message("assistant", "fix: read both integers from one line")),
    ]
    assert labels(exchanges) == {"a1": "train", "c1": "aux", "a2": "train", "c2": "aux"}


def test_aider_that_ends_after_one_reply_and_a_commit():
    commit = Exchange("c1", [COMMIT, transcript(ASK, CODE)], message("assistant", "feat: print the sum"))
    main = Exchange("a1", aider(ASK), CODE)
    assert labels([main, commit]) == {"a1": "train", "c1": "aux"}


def test_aider_whose_history_is_summarised():
    summary = message("assistant", "I asked you to write solution.py, which prints a sum; you wrote it with sum and map.")
    earlier = user("I spoke to you previously about a number of things.\n" + summary["content"])
    error = user("1 of 2 tests failed: expected 3, got an exception.")
    exchanges = [
        Exchange("a1", aider(ASK), CODE),
        Exchange("s1", [SUMMARY, user(f"# USER\n{TASK.prompt}\n# ASSISTANT\n{CODE['content']}\n")], summary),
        Exchange("a2", aider(earlier, message("assistant", "Ok."), error), FIX),
    ]
    assert labels(exchanges) == {"a1": "train", "s1": "aux", "a2": "train"}
    reasons = {turn.call.id: turn.label.reason for turn in turns(exchanges)}
    assert reasons["s1"] == "summary that a rewritten history starts from"
    assert reasons["a2"].startswith("agent conversation with a rewritten history")


def test_opencode_with_a_sub_agent():
    prompt = "Search the workspace for every file that reads standard input."
    task = tool_call("task", description="search", prompt=prompt)
    sub = [message("system", "You are a file search specialist. You excel at navigating codebases."), user(prompt)]
    grep, found = tool_call("grep", pattern="stdin"), message("assistant", "Only solution.py reads standard input, in line 1.")
    exchanges = [
        Exchange("a1", MAIN, task, TOOLS),
        Exchange("s1", sub, grep, TOOLS),
        Exchange("s2", [*sub, grep, tool("solution.py:1")], found, TOOLS),
        Exchange("a2", [*MAIN, task, tool(found["content"] + "\n<task_metadata>id</task_metadata>")], DONE, TOOLS),
    ]
    assert set(labels(exchanges).values()) == {"train"}
    single = [exchanges[0], Exchange("s1", sub, found, TOOLS), exchanges[3]]
    assert labels(single) == {"a1": "train", "s1": "train", "a2": "train"}
    assert {t.call.id: t.label.reason.split(":")[0] for t in turns(single)}["s1"] == "sub-agent"


def test_a_sub_agent_known_only_by_its_result():
    found = message("assistant", "Only solution.py reads standard input, in line 1.")
    call = tool_call("ask_expert", about="io")
    exchanges = [
        Exchange("a1", MAIN, call, TOOLS),
        Exchange("s1", [message("system", "You know everything about files."), user("Topic: io. Answer in one line.")], found),
        Exchange("a2", [*MAIN, call, tool(found["content"])], DONE, TOOLS),
    ]
    assert labels(exchanges) == {"a1": "train", "s1": "train", "a2": "train"}


def test_a_sub_agent_that_nobody_waits_for():
    prompt = "Search the workspace for every file that reads standard input."
    task = tool_call("task", prompt=prompt)
    exchanges = [
        Exchange("a1", MAIN, task, TOOLS),
        Exchange("s1", [message("system", "You are a file search specialist."), user(prompt)], message("assistant", "None"), TOOLS),
        Exchange("a2", [*MAIN, task, tool("started")], DONE, TOOLS),
    ]
    assert labels(exchanges) == {"a1": "train", "s1": "train", "a2": "train"}


def test_a_sub_agent_whose_reply_is_told_to_an_agent_that_rewrites_its_history():
    question = message("assistant", "Please review this program: print(sum(map(int, input().split())))")
    review = message("assistant", "The program reads one line only, which is what the task says.")
    told = user(f"The reviewer says: {review['content']}")
    exchanges = [
        Exchange("a1", aider(ASK), question),
        Exchange("s1", [message("system", "You review programs."), user(question["content"])], review),
        Exchange("a2", aider(ASK, question, told, files="print(sum(...))"), CODE),
    ]
    assert labels(exchanges) == {"a1": "train", "s1": "train", "a2": "train"}


def test_sub_agents_with_the_same_request_are_both_agent_work():
    prompt = "Search the workspace for every file that reads standard input."
    both = message("assistant", "", tool_calls=tool_call("task", prompt=prompt)["tool_calls"] * 2)
    sub = [message("system", "You are a file search specialist."), user(prompt)]
    one = message("assistant", "Only solution.py reads standard input.")
    two = message("assistant", "It is the file solution.py and no other.")
    exchanges = [
        Exchange("a1", MAIN, both, TOOLS),
        Exchange("s1", sub, one, TOOLS),
        Exchange("s2", sub, two, TOOLS),
        Exchange("a2", [*MAIN, both, tool(one["content"]), tool(two["content"])], DONE, TOOLS),
    ]
    assert set(labels(exchanges).values()) == {"train"}


SUMMED = message("assistant", "## Goal\nWrite solution.py that prints a sum.\n## Done\nThe file is written, the examples are left to run.")


def test_opencode_that_compacts():
    """The summary has a system prompt of its own and comes back as an assistant message."""
    compaction = message("system", "You are a context summarization agent. You are given a conversation between a user and an agent.")
    history = [ASK, WRITE, tool("written")]
    anew = [SYSTEM, user("What did we do so far?"), SUMMED, user("Continue if you have next steps.")]
    run = tool_call("bash", command="python solution.py")
    exchanges = [
        Exchange("a1", MAIN, WRITE, TOOLS),
        Exchange("s1", [compaction, *history, user("Create a new anchored summary from the conversation history.")], SUMMED),
        Exchange("a2", anew, run, TOOLS),
        Exchange("a3", [*anew, run, tool("3")], DONE, TOOLS),
    ]
    assert labels(exchanges) == {"a1": "train", "s1": "aux", "a2": "train", "a3": "train"}


def test_opencode_whose_summary_request_retells_tool_results():
    """The replies themselves say too little to be found again; the history starts anew with one reply."""
    look = tool_call("bash", command="ls")
    result = tool("solution.py\nexamples/check.py\nexamples/1.in\nexamples/1.out")
    request = user(f"<conversation>\n[Tool result]: {result['content']}\n</conversation>\nCreate a new anchored summary.")
    exchanges = [
        Exchange("a1", MAIN, look, TOOLS),
        Exchange("a2", [*MAIN, look, result], message("assistant", "Looked."), TOOLS),
        Exchange("s1", [message("system", "You are a context summarization agent."), request], SUMMED),
        Exchange("a3", [SYSTEM, user("What did we do so far?"), SUMMED, user("Continue.")], message("assistant", "All is done."), TOOLS),
    ]
    assert labels(exchanges) == {"a1": "train", "a2": "train", "s1": "aux", "a3": "train"}


def test_a_history_that_is_compacted_twice():
    summarise = message("system", "You are a context summarization agent.")
    again = message("assistant", "## Goal\nWrite solution.py.\n## Done\nThe examples were run as well and both of them pass.")
    anew = [SYSTEM, user("What did we do so far?"), SUMMED, user("Continue.")]
    exchanges = [
        Exchange("a1", MAIN, CODE),
        Exchange("s1", [summarise, ASK, CODE, user("Summarise.")], SUMMED),
        Exchange("a2", anew, FIX),
        Exchange("s2", [summarise, *anew[1:], FIX, user("Summarise.")], again),
        Exchange("a3", [SYSTEM, user("What did we do so far?"), again, user("Continue.")], DONE),
    ]
    assert labels(exchanges) == {"a1": "train", "s1": "aux", "a2": "train", "s2": "aux", "a3": "train"}


def test_a_compaction_asked_within_the_conversation():
    """The summary call continues the conversation's tokens; its reply comes back wrapped in a user message."""
    anew = [SYSTEM, user("This session is continued from a previous one.\n" + SUMMED["content"])]
    exchanges = [
        *OPENCODE[:1],
        Exchange("s1", [*MAIN, WRITE, tool("written"), user("Summarise the conversation so far.")], SUMMED, TOOLS),
        Exchange("a2", anew, DONE, TOOLS),
    ]
    assert labels(exchanges) == {"a1": "train", "s1": "aux", "a2": "train"}


def test_a_system_prompt_that_is_rendered_anew_for_each_call():
    def system(time, files):
        return message("system", f"{SYSTEM['content']} Files: {files} It is now {time}")

    exchanges = [
        Exchange("a1", [system("10:01:02", "none"), ASK], WRITE),
        Exchange("a2", [system("10:01:09", "solution.py"), ASK, WRITE, tool("written")], DONE),
    ]
    assert labels(exchanges) == {"a1": "train", "a2": "train"}
    assert turns(exchanges).turn("a2").call.parent_id is None


def test_dropped_thinking_is_the_same_conversation():
    thought = message("assistant", "<think>Two numbers, so split the line.</think>I will write the file now.")
    exchanges = [
        Exchange("a1", MAIN, thought),
        Exchange("a2", [*MAIN, message("assistant", "I will write the file now."), user("Go on.")], DONE),
    ]
    assert labels(exchanges) == {"a1": "train", "a2": "train"}
    assert turns(exchanges).turn("a1").label.reason == "agent conversation; it went on"


def test_retries_keep_the_reply_that_was_delivered_and_went_on():
    other = message("assistant", "I cannot do that.")
    exchanges = [
        Exchange("gone", MAIN, other, TOOLS, {"delivered": False}),
        Exchange("unused", MAIN, message("assistant", "Let me think about it."), TOOLS),
        Exchange("failed", MAIN, other, TOOLS, {"error": "HTTP 500: overloaded"}),
        *OPENCODE,
        Exchange("late", MAIN, other, TOOLS),
    ]
    assert labels(exchanges) == {
        "gone": "discarded",
        "unused": "discarded",
        "failed": "discarded",
        "a1": "train",
        "a2": "train",
        "late": "discarded",
    }
    failed = turns(exchanges).turn("failed")
    assert (failed.decided_by, failed.label.reason) == ("capture", "no reply from the engine: HTTP 500: overloaded")


def test_of_two_equal_replies_the_delivered_one_is_kept():
    got = labels([Exchange("gone", MAIN, WRITE, TOOLS, {"delivered": False}), *OPENCODE])
    assert got == {"gone": "discarded", "a1": "train", "a2": "train"}


def test_of_two_replies_before_a_compaction_the_one_that_was_summarised_is_kept():
    summarise = message("system", "You are a context summarization agent.")
    exchanges = [
        Exchange("a1", MAIN, CODE),
        Exchange("late", MAIN, message("assistant", "I cannot write files in this folder, sorry.")),
        Exchange("s1", [summarise, ASK, CODE, user("Summarise.")], SUMMED),
        Exchange("a2", [SYSTEM, user("What did we do so far?"), SUMMED, user("Continue.")], DONE),
    ]
    assert labels(exchanges) == {"a1": "train", "late": "discarded", "s1": "aux", "a2": "train"}


def test_a_retry_at_the_end_keeps_the_last_delivered():
    got = labels([Exchange("r1", MAIN, CODE), Exchange("r2", MAIN, FIX), Exchange("r3", MAIN, DONE, (), {"delivered": False})])
    assert got == {"r1": "discarded", "r2": "train", "r3": "discarded"}


def test_a_reply_that_the_conversation_went_on_beside_is_abandoned():
    malformed = message("assistant", "write solution.py print sum please")
    exchanges = [
        OPENCODE[0],
        Exchange("lost", [*MAIN, WRITE, tool("written")], malformed, TOOLS),
        Exchange("a2", [*MAIN, WRITE, tool("written"), user("Call a tool.")], WRITE, TOOLS),
        Exchange("a3", [*MAIN, WRITE, tool("written"), user("Call a tool."), WRITE, tool("written")], DONE, TOOLS),
    ]
    assert labels(exchanges) == {"a1": "train", "lost": "discarded", "a2": "train", "a3": "train"}


def test_of_two_questions_on_one_turn_the_one_that_went_on_is_kept():
    asked = [*MAIN, WRITE, tool("written")]
    exchanges = [
        OPENCODE[0],
        Exchange("lost", [*asked, user("Shall we stop?")], message("assistant", "Perhaps we should."), TOOLS),
        Exchange("a2", [*asked, user("Now run it.")], WRITE, TOOLS),
        Exchange("a3", [*asked, user("Now run it."), WRITE, tool("written")], DONE, TOOLS),
    ]
    assert labels(exchanges) == {"a1": "train", "lost": "discarded", "a2": "train", "a3": "train"}


def test_a_reply_whose_client_had_gone_is_discarded():
    last = Exchange("a2", OPENCODE[1].messages, DONE, TOOLS, {"delivered": False})
    assert labels([OPENCODE[0], last]) == {"a1": "train", "a2": "discarded"}


def test_a_policy_that_repeats_itself():
    history, exchanges = list(MAIN), []
    for n in range(4):
        exchanges.append(Exchange(f"a{n}", tuple(history), WRITE, TOOLS))
        history += [WRITE, tool("written")]
    got = turns(exchanges)
    assert [turn.label.reason.rpartition("; ")[2] for turn in got] == [*["it went on"] * 3, "it ended with this reply"]


def test_two_branches_of_one_turn_are_both_agent_work():
    exchanges = [
        OPENCODE[0],
        Exchange("b1", [*MAIN, WRITE, tool("written"), user("Main: go on.")], DONE, TOOLS),
        Exchange("b2", [*MAIN, WRITE, tool("written"), user("Sub: check it.")], message("assistant", "Checked, it is right."), TOOLS),
    ]
    assert set(labels(exchanges).values()) == {"train"}


def test_text_that_the_agent_made_up_changes_nothing():
    made_up = message("assistant", "I understand and will follow these rules without exception.")
    main = [SYSTEM, user("Rules: be brief."), made_up, ASK]
    assert labels([Exchange("a1", main, CODE), Exchange("a2", [*main, CODE, user("Fix it.")], DONE)]) == {"a1": "train", "a2": "train"}


def test_a_session_without_calls():
    assert len(label_calls([], {}, task=TASK)) == 0
