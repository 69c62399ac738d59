"""The practice policy's tokenizer: the agents' own paragraphs as one token each, a small byte-level BPE for the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from longrein.practice.script import OUTPUT, PROGRAM, PROMPT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END = "<|im_end|>"
PAD = "<|pad|>"
ROLES = tuple(f"<|im_start|>{role}\n" for role in ("system", "tools", "user", "assistant", "tool"))
TOOL_CALL = ("<tool_call>\n", "\n</tool_call>")
VOCABULARY = 1536
"""Size of the byte-level BPE, agents' paragraphs and markers not counted."""
SHORTEST = 24
"""Characters of the shortest paragraph that becomes a token; shorter ones could also occur in replies."""
LONGEST = 1500
"""A paragraph token ends at the first blank line after so many characters: a line that varies unforeseen then costs little."""
VARYING = re.compile(r"\b20\d\d\b|\d+\.\d+\.\d+")
"""A date or a version: its line is left to the BPE."""
MARKS = (PROMPT, PROGRAM, OUTPUT)
TEMPLATE = """\
{%- if tools -%}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else -%}
{%- for part in message.content or [] %}{{ part.text }}{% endfor %}{% endif -%}
{%- for call in message.tool_calls or [] -%}
{%- set call = call.function or call -%}
<tool_call>
{"name": {{ call.name | tojson }}, "arguments": {{ call.arguments if call.arguments is string else call.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""
"""ChatML with hermes tool calls. A reply is rendered exactly as it was sampled, so the next prompt continues it token for token."""


def paragraphs(recordings: Iterable[Iterable[Mapping[str, Any]]]) -> list[str]:
    """Return the paragraphs and tool descriptions that every recording of one agent holds, in order of appearance.

    Args:
        recordings: for each recorded session, its requests.
    """
    found = [dict.fromkeys(chunk for request in requests for chunk in _chunks(request)) for requests in recordings]
    return [chunk for chunk in found[0] if all(chunk in other for other in found[1:])]


def _chunks(request: Mapping[str, Any]) -> Iterable[str]:
    for tool in request.get("tools") or ():
        yield json.dumps(tool, ensure_ascii=False) + "\n"
    for message in request["messages"]:
        content = message.get("content")
        for text in [content or ""] if not isinstance(content, list) else [part.get("text", "") for part in content]:
            yield from (chunk for chunk in _split(text) if len(chunk) >= SHORTEST)


def _split(text: str) -> Iterable[str]:
    """Cut a text after blank lines and around lines that vary."""
    chunk = ""
    for line in text.splitlines(keepends=True):
        if VARYING.search(line) or any(mark in line for mark in MARKS):
            yield chunk
            chunk = ""
            continue
        chunk += line
        if not line.strip() and len(chunk) > LONGEST:
            yield chunk
            chunk = ""
    yield chunk


def build(paragraphs: Sequence[str], corpus: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train the tokenizer.

    Args:
        paragraphs: texts that become one token each.
        corpus: what the BPE learns from.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\d{1,3}|\\n|\n|[\\#.]|[^\d\n\\#.]+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[PAD, END], show_progress=False,
    ))
    exact = {"normalized": False, "special": False}
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ROLES])
    tokenizer.add_tokens([AddedToken(text, **exact) for text in (*TOOL_CALL, *paragraphs)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, padding_side="left")
    fast.chat_template = TEMPLATE
    return fast
