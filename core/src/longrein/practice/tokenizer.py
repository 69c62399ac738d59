"""The practice policy's tokenizer: the agents' own paragraphs as one token each, a small byte-level BPE for the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from longrein.practice.record import Exchange, Recording
from longrein.practice.script import MARKS, text_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer
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
VARYING = re.compile(r"\b20\d\d\b|\d+\.\d+\.\d+|/tmp/")
"""A date, a version or a temporary folder: its line is left to the BPE."""
TEMPLATE = """\
{%- if tools -%}
<|im_start|>tools
{% for tool in tools %}
{{ tool | tojson }}
{% endfor -%}
<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] -%}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
"""ChatML with hermes tool calls. A reply is rendered exactly as it was sampled, so the next prompt continues it token for token."""


def paragraphs(recording: Recording) -> list[str]:
    """Return the paragraphs and tool descriptions that both sessions of an agent hold, in order of appearance."""
    chunks = [chunk for text in _texts(recording.failing) for chunk in _split(text, _static(recording))]
    tools = [json.dumps(tool, ensure_ascii=False) + "\n" for exchange in recording.failing for tool in exchange.tools or ()]
    return list(dict.fromkeys(chunk for chunk in (*tools, *chunks) if len(chunk) >= SHORTEST))


def varying_lines(recording: Recording) -> list[str]:
    """Return the lines that no paragraph holds: the BPE learns from them."""
    static = _static(recording)
    lines = [line for session in recording.sessions for text in _texts(session) for line in text.splitlines(keepends=True)]
    return [line for line in dict.fromkeys(lines) if len(line) < SHORTEST or line not in static]


def _static(recording: Recording) -> AbstractSet[str]:
    """Return the lines that both sessions hold and that look as if they stayed."""
    passing, failing = ({line for text in _texts(session) for line in text.splitlines(keepends=True)} for session in recording.sessions)
    return {line for line in passing & failing if not VARYING.search(line) and not any(mark in line for mark in MARKS)}


def _texts(session: Sequence[Exchange]) -> list[str]:
    return [text_of(message) for exchange in session for message in exchange.messages]


def _split(text: str, static: AbstractSet[str]) -> Iterable[str]:
    """Cut a text around lines that vary, and after blank lines."""
    chunk = ""
    for line in text.splitlines(keepends=True):
        if line not in static:
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

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # Numbers and what stands between them: a phrase becomes one token, and a number is the same token wherever it stands.
            pre_tokenizers.Split(Regex(r"\d{1,3}|\\n|[\n`]+|[\\#]|\.(?=[\s\\]|$)|(?:[^\d\n\\#`.]|\.(?![\s\\]|$))+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[PAD, END],
            show_progress=False,
        ),
    )
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ROLES])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in (*TOOL_CALL, *paragraphs)])
    return _fast(tokenizer)


def renderer() -> PreTrainedTokenizerFast:
    """Return a tokenizer that has the chat template and no vocabulary."""
    from tokenizers import Tokenizer, models

    return _fast(Tokenizer(models.BPE()))


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        padding_side="left",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
