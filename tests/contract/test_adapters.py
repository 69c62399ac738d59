"""The shipped adapters hold to the contract, each with its real program."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from longrein.function import FunctionAgent
from longrein.testing import AdapterContract
from longrein_aider.contract import AiderContract
from longrein_claude_code.contract import ClaudeCodeContract
from longrein_codex.adapter import Codex
from longrein_mini_swe_agent.contract import MiniSweAgentContract
from longrein_opencode.adapter import Opencode
from longrein_qwen_code.adapter import QwenCode

pytestmark = pytest.mark.timeout(600)


class TestOpencode(AdapterContract):
    adapter = Opencode


class TestAider(AiderContract):
    pass


class TestCodex(AdapterContract):
    adapter = Codex


class TestClaudeCode(ClaudeCodeContract):
    pass


class TestQwenCode(AdapterContract):
    adapter = QwenCode


class TestMiniSweAgent(MiniSweAgentContract):
    pass


class TestFunction(AdapterContract):
    adapter = FunctionAgent
    options: ClassVar[dict[str, str]] = {"target": f"{Path(__file__).with_name('my_function.py')}:my_agent"}
    patience_s = 15.0
