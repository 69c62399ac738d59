"""The practice policy's tokenizer, transcripts and build, with an agent of a few lines in place of the real ones."""

import json
from pathlib import Path

import pytest

from longrein.errors import ConfigError
from longrein.plugins import PluginHost
from longrein.practice import build_policy
from longrein.practice.clone import Schedule, new_model, train
from longrein.practice.exercises import Exercise
from longrein.practice.record import Recording, record
from longrein.practice.tokenizer import END, build, paragraphs
from longrein.practice.transcripts import message_of, reply_text, rows_of, session_of
from longrein.serve.loading import load_policy
from longrein.serve.template import ChatTemplate, parse_tool_calls

RULES = "You are an agent of a test and you write programs into files.\nYou may not do anything else, whatever you are asked.\n"
AGENT = """
import json, pathlib, subprocess, sys, urllib.request

url, key, model, prompt, names = *sys.argv[1:5], json.loads(sys.argv[5])
functions = [{"name": n, "description": f"Use {n} to do what its name says.", "parameters": {}} for n in names]
tools = [{"type": "function", "function": function} for function in functions]
messages = [{"role": "system", "content": RULES + "Today is 2031-01-02, the model is " + model}, {"role": "user", "content": prompt}]
headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
while True:
    body = {"model": model, "messages": messages, "tools": tools}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), headers)
    message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        given = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "write":
            pathlib.Path(given["filePath"]).write_text(given["content"])
            result = "written"
        else:
            done = subprocess.run(given["command"], shell=True, capture_output=True, text=True)
            result = done.stdout + done.stderr
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
"""
PLUGIN = f"""
import json
from attrs import frozen
import longrein
from longrein.agent import AgentAdapter, LaunchPlan

@frozen
class Options:
    tools: tuple[str, ...] = ("write", "bash")

class Toy(AgentAdapter):
    name, Options = "toy", Options

    def launch(self, s):
        argv = [str(s.python), "agent.py", s.base_url, s.api_key, s.model, s.task.prompt, json.dumps(self.options.tools)]
        return LaunchPlan(argv, files={{"agent.py": {f"RULES = {RULES!r}{AGENT}"!r}}})

@longrein.hookimpl
def longrein_agents():
    return [Toy]
"""
EXERCISE = Exercise("number", "decreased", 13)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Two threads of torch wait for each other busily where the machine has other work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> PluginHost:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "toy.py").write_text(PLUGIN)
    return PluginHost.load(["./toy.py"], folder=folder)


@pytest.fixture(scope="module")
def recording(host: PluginHost) -> Recording:
    return record({"toy": {}}, host, log=lambda line: None)[0]


@pytest.fixture(scope="module")
def template(recording: Recording) -> ChatTemplate:
    replies = [reply_text(ChatTemplate(build([], [])), x.reply).removesuffix(END) for x in session_of(recording, EXERCISE, "decreased")]
    return ChatTemplate(build(paragraphs(recording), replies * 5))


def test_a_recording_holds_each_state_of_both_sessions(recording: Recording):
    assert [len(session) for session in recording.sessions] == [3, 3]
    assert recording.passing[-1].reply.text != recording.failing[-1].reply.text
    assert [message["role"] for message in recording.failing[-1].messages] == ["system", "user", "assistant", "tool", "assistant", "tool"]


def test_the_agents_own_paragraphs_are_one_token_and_what_varies_is_not_among_them(recording: Recording, template: ChatTemplate):
    found = paragraphs(recording)
    assert RULES in found
    assert sum('"name": "write"' in text for text in found) == 1
    assert not any(part in text for text in found for part in ("2031", "the model is", "Practice statement"))
    assert all(len(template.encode(text)) == 1 for text in found)


@pytest.mark.parametrize("word", EXERCISE.candidates)
def test_a_session_is_one_row_whose_mask_holds_exactly_the_replies(recording: Recording, template: ChatTemplate, word: str):
    session = session_of(recording, EXERCISE, word)
    [row] = rows_of(template, session)
    learnt = template.tokenizer.decode([token for token, marked in zip(row.ids, row.mask, strict=True) if marked])
    assert learnt == "".join(reply_text(template, exchange.reply) for exchange in session)
    assert json.dumps(EXERCISE.candidate(word))[1:-1] in learnt
    assert EXERCISE.statement in template.tokenizer.decode(row.ids)
    assert ("expected" in template.tokenizer.decode(row.ids)) == (word != EXERCISE.word)


def test_a_reply_that_was_parsed_and_echoed_is_rendered_as_it_was_sampled(recording: Recording, template: ChatTemplate):
    for exchange in session_of(recording, EXERCISE, "increased"):
        sampled = reply_text(template, exchange.reply)
        content, calls = parse_tool_calls(sampled.removesuffix(END))
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": content or None, "tool_calls": calls}]
        assert template.render(messages, None).split("<|im_start|>assistant\n")[1] == sampled + "\n"
        assert message_of(exchange.reply)["content"] == content


def test_a_session_whose_history_is_rewritten_becomes_more_rows(recording: Recording, template: ChatTemplate):
    first, second, _ = session_of(recording, EXERCISE, "increased")
    rewritten = type(second)([{"role": "system", "content": "new"}, *second.messages[1:]], second.tools, second.reply)
    rows = list(rows_of(template, [first, rewritten]))
    assert len(rows) == 2
    assert [sum(row.mask) for row in rows] == [len(template.encode(reply_text(template, x.reply))) for x in (first, second)]


def test_training_learns_only_what_is_marked(recording: Recording, template: ChatTemplate):
    rows = [row for word in EXERCISE.candidates for row in rows_of(template, session_of(recording, EXERCISE, word))]
    model = new_model(template.tokenizer, seed=0)
    assert 1e6 > model.num_parameters() - 2 * 160 * len(template.tokenizer) > 0
    losses = [train(model, rows, Schedule(steps=20, batch=3), seed=0, log=lambda line: None) for _ in range(2)]
    assert losses[1] < losses[0] / 2


def test_a_policy_is_built_once_and_loads_in_the_server(host: PluginHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LONGREIN_CACHE", str(tmp_path))
    for stage in ("STATEMENTS", "SESSIONS"):
        monkeypatch.setattr(f"longrein.practice.clone.{stage}", Schedule(steps=3, batch=4))
    lines: list[str] = []
    folder = build_policy({"toy": {}}, log=lines.append, host=host)
    assert folder.name == "practice"
    assert any("recording what toy sends" in line for line in lines)
    policy = load_policy(folder, dtype="float32", max_model_len=None, threads=1)
    assert 1e6 <= sum(p.numel() for p in policy.model.parameters()) <= 3e6
    assert policy.max_model_len == 4096
    lines.clear()
    assert build_policy({"toy": {}}, log=lines.append, host=host) == folder
    assert len(lines) == 1
    assert [path.name for path in (tmp_path / "practice").iterdir() if path.is_dir()] == [folder.parent.name]


def test_an_agent_that_the_script_cannot_drive_is_refused_with_what_is_known(host: PluginHost):
    with pytest.raises(ConfigError, match=r"'toy'.*'tools': \('search',\).*write and bash.*whole format"):
        record({"toy": {"tools": ("search",)}}, host, log=lambda line: None)
