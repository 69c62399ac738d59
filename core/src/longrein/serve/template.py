"""Chat messages to prompt tokens, and sampled tokens to an assistant message."""

from __future__ import annotations

import json
import re
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from longrein.errors import ServeError
from longrein.serve.request import BadRequest

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
_CALL = re.compile(rf"\n?{CALL_OPEN}(.*?){CALL_CLOSE}", re.DOTALL)
KEPT_REPLIES = 256


class ChatTemplate:
    """A tokenizer's chat template, with the memory that makes a conversation continue token for token.

    A reply that ended by itself is remembered as text and tokens. A later prompt whose text begins with it begins with the same
    tokens, though the tokenizer would have cut that text otherwise than the model did.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ServeError("the model's tokenizer has no chat template; add chat_template.jinja to the model folder")
        self.tokenizer = tokenizer
        self._replies: OrderedDict[str, list[int]] = OrderedDict()

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> str:
        """Return the prompt's text.

        Raises:
            BadRequest: the messages are malformed or the template refuses them.
        """
        if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
            raise BadRequest("messages must be a list of at least one object")
        plain = [plain_message(message) for message in messages]
        try:
            text: str = self.tokenizer.apply_chat_template(plain, tools=tools or None, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # templates are programs: they raise what they like
            raise BadRequest(f"the chat template refused the messages: {type(error).__name__}: {error}") from error
        return text

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt's text."""
        known = max((reply for reply in self._replies if text.startswith(reply)), key=len, default="")
        if known:
            self._replies.move_to_end(known)
        rest = self.tokenizer(text[len(known) :], add_special_tokens=False)["input_ids"] if len(text) > len(known) else []
        return [*self._replies.get(known, ()), *rest]

    def remember(self, prompt: str, ids: Sequence[int], sampled: Sequence[int]) -> None:
        """Keep the tokens of a prompt and of its reply, which ended with an end token, for the prompts that continue it."""
        self._replies[prompt + self.tokenizer.decode(list(sampled), skip_special_tokens=False)] = [*ids, *sampled]
        if len(self._replies) > KEPT_REPLIES:
            self._replies.popitem(last=False)

    def decode(self, sampled: Sequence[int]) -> str:
        """Return the reply's text without special tokens."""
        text: str = self.tokenizer.decode(list(sampled), skip_special_tokens=True)
        return text


def plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as templates expect it: text content, tool-call arguments as objects.

    Raises:
        BadRequest: the message is malformed, or holds parts that are not text.
    """
    plain = {key: value for key, value in message.items() if value is not None}
    plain["content"] = _text(message.get("content"))
    plain["role"] = "system" if message.get("role") == "developer" else message.get("role")
    if not isinstance(plain["role"], str):
        raise BadRequest(f"a message needs a role, got {message.get('role')!r}")
    if calls := message.get("tool_calls"):
        if not isinstance(calls, list) or not all(isinstance(call, dict) and isinstance(call.get("function"), dict) for call in calls):
            raise BadRequest("tool_calls must be a list of objects with a function")
        plain["tool_calls"] = [{**call, "function": {**call["function"], "arguments": _arguments(call["function"])}} for call in calls]
    else:
        plain.pop("tool_calls", None)
    return plain


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        raise BadRequest("content must be a string or a list of text parts")
    return "\n".join(part["text"] for part in content)


def _arguments(function: Mapping[str, Any]) -> Any:
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except json.JSONDecodeError:
        return arguments  # an agent's own invention; the template shows it as it is


def parse_tool_calls(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Return a reply's text outside its tool calls, and the calls in OpenAI's form.

    A block that is not `{"name": text, "arguments": object}` stays in the text. One newline before a block belongs to it, since
    templates put it there when the call comes back in the history.
    """
    calls: list[dict[str, Any]] = []

    def take(match: re.Match[str]) -> str:
        call = _call(match[1])
        if call is None:
            return match[0]
        calls.append(call)
        return ""

    content = _CALL.sub(take, text)
    return (content if content.strip() or not calls else ""), calls


def _call(block: str) -> dict[str, Any] | None:
    try:
        call = json.loads(block)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not isinstance(call.get("arguments"), dict):
        return None
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}
