"""The shipped adapters hold to the contract, each with its real program."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from longrein.function import FunctionAgent
from longrein.testing import AdapterContract
from longrein_aider.contract import AiderContract
from longrein_opencode.adapter import Opencode

pytestmark = pytest.mark.timeout(600)


class TestOpencode(AdapterContract):
    adapter = Opencode


class TestAider(AiderContract):
    pass


class TestFunction(AdapterContract):
    adapter = FunctionAgent
    options: ClassVar[dict[str, str]] = {"target": f"{Path(__file__).with_name('my_function.py')}:my_agent"}
    patience_s = 15.0
