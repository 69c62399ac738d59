"""From recordings to training rows: every exercise with each of its candidates, in each agent's own format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from longrein.practice.exercises import FAMILIES, Exercise
from longrein.practice.record import Exchange, Recording
from longrein.practice.script import OUTPUT, PROGRAM, PROMPT
from longrein.practice.tasks import public_task, split_cases
from longrein.practice.tokenizer import END
from longrein.serve.template import ChatTemplate
from longrein.testing.scripted import Reply


@frozen
class Row:
    """One sequence; `mask` is 1 at the tokens to learn."""

    ids: Sequence[int]
    mask: Sequence[int]


def check_output(exercise: Exercise, word: str) -> str:
    """Return what the check script prints for candidate `word`."""
    compute = FAMILIES[exercise.family].operations[word].compute
    lines = []
    for number, case in enumerate(split_cases(exercise)[0], start=1):
        values = [int(value) for value in case.stdin.split()]
        got = str(compute(values if len(values) > 1 else values[0], exercise.k))
        want = case.stdout.strip()
        lines.append(f"example {number}: " + ("ok" if got == want else f"expected {want!r}, got {got!r}"))
    return "\n".join(lines)


def session_of(recording: Recording, exercise: Exercise, word: str) -> list[Exchange]:
    """Return a recorded session with an exercise and its candidate `word` in place of the marks."""
    output = check_output(exercise, word)
    marks = {PROMPT: public_task(exercise).prompt, PROGRAM: exercise.candidate(word).rstrip("\n"), OUTPUT: output}
    recorded = recording.failing if "expected" in output else recording.passing
    return [
        Exchange(
            [_filled(message, marks) for message in exchange.messages],
            exchange.tools,
            Reply(_filled(exchange.reply.text, marks), _filled(list(exchange.reply.tool_calls), marks)),
        )
        for exchange in recorded
    ]


def _filled(value: Any, marks: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for mark, text in marks.items():
            value = value.replace(mark, text)
        return value
    if isinstance(value, dict):
        return {key: _filled(item, marks) for key, item in value.items()}
    return [_filled(item, marks) for item in value] if isinstance(value, list | tuple) else value


def message_of(reply: Reply) -> dict[str, Any]:
    """Return a reply as the assistant message that agents echo."""
    calls = [{"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in reply.tool_calls]
    return {"role": "assistant", "content": reply.text, "tool_calls": calls}


def reply_text(template: ChatTemplate, reply: Reply) -> str:
    """Return a reply as the model says it, with its end token."""
    alone = template.render([message_of(reply)], None)
    return alone[len("<|im_start|>assistant\n") : alone.index(END) + len(END)]


def statement_row(template: ChatTemplate, session: Sequence[Exchange], exercise: Exercise) -> Row:
    """Return the reply with the program as the answer to the bare statement."""
    reply = max((exchange.reply for exchange in session), key=lambda reply: len(reply_text(template, reply)))
    return next(rows_of(template, [Exchange([{"role": "user", "content": exercise.statement}], None, reply)]))


def rows_of(template: ChatTemplate, session: Sequence[Exchange]) -> Iterator[Row]:
    """Yield the rows of a session: a prompt that continues the one before stays in its row."""
    ids: list[int] = []
    mask: list[int] = []
    for exchange in session:
        prompt = template.encode(template.render(list(exchange.messages), exchange.tools))
        said = template.encode(reply_text(template, exchange.reply))
        if ids and prompt[: len(ids)] != ids:
            yield Row(ids, mask)
            mask = []
        ids, mask = prompt + said, mask + [0] * (len(prompt) - len(mask)) + [1] * len(said)
    yield Row(ids, mask)
