"""The kit finds, one by one, what adapters get wrong; each toy is the template's adapter with one fault."""

from __future__ import annotations

import pytest
from tests.contract.conftest import Toy

MAIN = "    messages = [\n"

FAULTS = [
    (
        "a fixed port",
        {"agent": (MAIN, '    import socket\n    held = socket.create_server(("127.0.0.1", 48123))\n' + MAIN)},
        "sessions_do_not_mix",
        r"both sessions listened on port 48123; take a free one",
    ),
    (
        "a child left behind",
        {"agent": (MAIN, '    subprocess.Popen(["sleep", "999"], start_new_session=True)\n' + MAIN)},
        "no_process_is_left",
        r"the agent ended and left: sleep 999",
    ),
    (
        "another key",
        {"agent": ('os.environ["OPENAI_API_KEY"]', '"none"')},
        "every_call_has_the_key",
        r"calls came without a session's key",
    ),
    (
        "the key on the command line",
        {"adapter": ("program, session.task.prompt]", "program, session.task.prompt, session.api_key]")},
        "every_call_has_the_key",
        r"the key stands on the command line",
    ),
    (
        "a call into the network",
        {
            "agent": (
                MAIN,
                '    try:\n        urllib.request.urlopen("http://updates.example/check")\n    except OSError:\n        pass\n' + MAIN,
            )
        },
        "calls_nobody_else",
        r"the agent called: GET http://updates\.example/check",
    ),
    (
        "waiting for an answer",
        {
            "agent": (
                'print(reply.get("content") or "")\n',
                'print(reply.get("content") or "")\n        while "[y/N]" in str(reply.get("content")) and not sys.stdin.readline():\n'
                '            __import__("time").sleep(0.2)\n',
            )
        },
        "questions",
        r"hung on a question: stalled",
    ),
    (
        "engine errors hidden behind another call",
        {
            "agent": (
                "        reply = ask(messages)\n",
                "        try:\n            reply = ask(messages)\n        except OSError:\n"
                '            reply = ask([{"role": "user", "content": "Say that all is well."}])\n',
            )
        },
        "engine_errors",
        r"the engine failed, but the session was graded",
    ),
    (
        "a turn cap that is not honoured",
        {"adapter": ("tools=True)", "tools=True, honours_turn_cap=True)")},
        "declared_turn_cap",
        r"declares honours_turn_cap, but asked for more than 3 calls",
    ),
    (
        "a wrong dialect",
        {"adapter": ('dialect="chat"', 'dialect="messages"')},
        "declared_dialect",
        r"declares dialect 'messages', but spoke chat",
    ),
    (
        "tools that are not declared",
        {"adapter": ("tools=True)", "tools=False)")},
        "declared_tools",
        r"declares tools = False, but its calls offer run_command, write_file",
    ),
    (
        "no actions",
        {"adapter": ("return tool_actions(result, KINDS)", "return []")},
        "actions",
        r"the agent wrote files, but its actions are \[\]",
    ),
    (
        "a plan that differs each time",
        {"adapter": ("session.task.prompt],", "session.task.prompt, str(id(object()) + __import__('time').time_ns())],")},
        "launch_is_pure",
        r"two launches of one session differ",
    ),
    (
        "a launch that writes",
        {"adapter": ('program = f"{', '(Path(__file__).parent / "log").write_text("x")\n        program = f"{')},
        "launch_is_pure",
        r"launch touched: open .*log for writing",
    ),
    (
        "a prompt that is changed",
        {"adapter": ("program, session.task.prompt]", 'program, " ".join(session.task.prompt.split())]')},
        "the_prompt_arrives_unchanged",
        r"the prompt .* is not in what the agent asked",
    ),
    (
        "text that is cut",
        {"agent": ('given["content"],', 'given["content"].encode("ascii", "replace").decode(),')},
        "awkward_arguments",
        r"solution\.py differs at character 2: wanted 'é 漢",
    ),
]


@pytest.mark.parametrize(("change", "check", "says"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_fault_is_found(change: dict[str, tuple[str, str]], check: str, says: str, toy: Toy) -> None:
    contract = toy(**change)
    with pytest.raises(AssertionError, match=says):
        getattr(contract(), f"test_{check}")()


MISLABELLED = {
    "agent": (
        MAIN,
        '    TOOLS[:], kept = [], TOOLS[:]\n    ask([{"role": "user", "content": "A title for: " + sys.argv[1]}])\n    TOOLS[:] = kept\n'
        + MAIN,
    ),
    "adapter": ("return None  #", 'return TurnLabel("train", "mine")  #'),
}


def test_a_title_call_that_would_be_trained_is_found(toy: Toy) -> None:
    contract = toy(**MISLABELLED)
    with pytest.raises(AssertionError, match=r"side call c0 is train \(mine\)"):
        contract().test_side_calls_are_aux()
