"""Where openenv's dialects would take a conversation apart or leave an agent in the dark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from openenv.core.harness.capture.detection import APIType
from openenv.core.harness.capture.dialects import TransformManager
from openenv.core.harness.capture.dialects.anthropic import AnthropicStreamState, AnthropicTransformer
from openenv.core.harness.capture.dialects.openai_responses import OpenAIResponsesTransformer


class Dialects(TransformManager):  # type: ignore[misc]
    """openenv's dialects with ours in place of two."""

    def __init__(self) -> None:
        super().__init__()
        self._transformers |= {APIType.OPENAI_RESPONSES: _Responses(), APIType.ANTHROPIC: _Messages()}


class _Responses(OpenAIResponsesTransformer):  # type: ignore[misc]
    def _convert_input_items_to_messages(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return _joined(super()._convert_input_items_to_messages(items))


def _joined(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make one message of text and tool calls that follow each other.

    Responses has an item for each, so a reply that says something and calls a tool came back as two messages: other tokens than
    were sampled, and a new row for every such turn.
    """
    made: list[dict[str, Any]] = []
    for message in messages:
        before = made[-1] if made else {}
        if _is_assistant(message) and message.get("content") is None and _is_assistant(before) and not before.get("tool_calls"):
            made[-1] = {**message, **{key: value for key, value in before.items() if value is not None}}
        else:
            made.append(message)
    return made


def _is_assistant(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant"


class _Messages(AnthropicTransformer):  # type: ignore[misc]
    def create_stream_state(self, original_request: dict[str, Any]) -> Any:
        model = original_request.get("model", "unknown")
        return _MessagesStream(model=model, finish_to_stop_reason=self.FINISH_TO_STOP_REASON)


class _MessagesStream(AnthropicStreamState):  # type: ignore[misc]
    """Also reports the tokens of the prompt: openenv's says 0, and an agent then never compacts its history."""

    def process_chunk(self, chunk: dict[str, Any], is_first: bool = False) -> list[dict[str, Any]]:
        self._n_prompt = (chunk.get("usage") or {}).get("prompt_tokens", 0)
        events: list[dict[str, Any]] = super().process_chunk(chunk, is_first)
        return events

    def finalize(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = super().finalize()
        for event in events:
            if event["type"] == "message_delta":
                event["usage"]["input_tokens"] = self._n_prompt
        return events
