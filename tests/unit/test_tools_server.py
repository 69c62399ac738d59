"""The engine's end of a session's tools, spoken to as the program in the sandbox does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longrein.environment import Environment, Tool, ToolError
from longrein.model import Verdict
from longrein.tools import bridge
from longrein.tools.server import LONGEST, MAX_LINE, ToolServer

KEY = "key-1"


class Adding(Environment):
    """Adds numbers; some calls go wrong."""

    tools = (Tool("add", "Add.", {"type": "object"}),)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Add, refuse, fail or be long."""
        match arguments.get("a"):
            case "refuse":
                raise ToolError("not this")
            case "fail":
                raise ValueError("out of order")
            case "long":
                return "x" * (LONGEST + 5)
        return str(arguments.get("a", 0) + arguments.get("b", 0))

    async def verdict(self) -> Verdict:
        """Return a verdict."""
        return Verdict("passed", 1.0)


@asynccontextmanager
async def door(folder: Path, key: str = KEY) -> AsyncIterator[tuple[ToolServer, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve and connect."""
    server, path = ToolServer(Adding(), KEY), folder / "t.sock"
    async with server.serve(path):
        reader, writer = await asyncio.open_unix_connection(str(path), limit=4 * LONGEST)
        writer.write(key.encode() + b"\n")
        yield server, reader, writer
        writer.close()
    assert not path.exists()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, **params: Any) -> dict[str, Any]:
    """Send a request and return the whole answer."""
    writer.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}).encode() + b"\n")
    answer: dict[str, Any] = json.loads(await reader.readline())
    assert answer["id"] == method
    return answer


async def test_an_mcp_client_finds_and_calls_the_tools(tmp_path: Path) -> None:
    async with door(tmp_path) as (server, reader, writer):
        hello = (await ask(reader, writer, "initialize", protocolVersion="2025-03-26"))["result"]
        assert (hello["protocolVersion"], hello["capabilities"]) == ("2025-03-26", {"tools": {}})
        assert (await ask(reader, writer, "initialize", protocolVersion="x"))["result"]["protocolVersion"] == "2025-06-18"
        writer.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        [tool] = (await ask(reader, writer, "tools/list"))["result"]["tools"]
        assert tool == {"name": "add", "description": "Add.", "inputSchema": {"type": "object"}}
        results = [await ask(reader, writer, "tools/call", name="add", arguments=given) for given in ({"a": 1, "b": 2}, {"a": "refuse"})]
        assert [(r["result"]["content"][0]["text"], r["result"]["isError"]) for r in results] == [("3", False), ("not this", True)]
        long = (await ask(reader, writer, "tools/call", name="add", arguments={"a": "long"}))["result"]["content"][0]["text"]
        assert "5 characters left out" in long
        for wrong in ({"name": "mul"}, {"name": ["add"]}, {"name": "add", "arguments": [1]}):
            assert "the tools are add" in (await ask(reader, writer, "tools/call", **wrong))["error"]["message"]
        assert (await ask(reader, writer, "resources/list"))["error"]["code"] == -32601
        assert (server.failure, server.pending) == (None, 0)


async def test_a_failure_of_the_environment_ends_it_for_good(tmp_path: Path) -> None:
    async with door(tmp_path) as (server, reader, writer):
        failed = (await ask(reader, writer, "tools/call", name="add", arguments={"a": "fail"}))["result"]
        assert (failed["content"][0]["text"], failed["isError"]) == ("the environment has ended", True), "the cause is not the agent's"
        assert server.over.is_set()
        assert str(server.failure).startswith("tool 'add': ValueError: out of order")
        assert (await ask(reader, writer, "tools/call", name="add", arguments={"a": 1}))["result"]["isError"]


async def test_another_key_gets_nothing(tmp_path: Path) -> None:
    async with door(tmp_path, "key-2") as (_, reader, writer):
        writer.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        with pytest.raises((ConnectionError, AssertionError)):
            assert await reader.readline()


async def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    async with door(tmp_path) as (_, reader, writer):
        writer.write(b"x" * (2 * MAX_LINE))
        with pytest.raises((ConnectionError, AssertionError)):
            assert await reader.readline()


JSON: Any = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
MESSAGES = st.fixed_dictionaries(
    {"method": st.sampled_from(["initialize", "tools/list", "tools/call", "ping"]) | JSON},
    optional={"id": JSON, "params": JSON | st.fixed_dictionaries({"name": st.just("add") | JSON, "arguments": JSON})},
)


LINES = MESSAGES.map(lambda message: json.dumps(message).encode()) | st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(LINES, max_size=6))
async def test_whatever_an_agent_says_the_next_request_is_answered(tmp_path: Path, lines: list[bytes]) -> None:
    async with door(tmp_path) as (_, reader, writer):
        writer.write(b"".join(line + b"\n" for line in lines))
        writer.write(b'{"jsonrpc": "2.0", "id": "last one", "method": "ping"}\n')
        async with asyncio.timeout(20):
            while json.loads(await reader.readline()).get("id") != "last one":
                pass


async def test_the_program_in_the_sandbox_carries_lines_both_ways(tmp_path: Path) -> None:
    server, path = ToolServer(Adding(), KEY), tmp_path / "t.sock"
    async with server.serve(path):
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", bridge.__file__, str(path)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"LONGREIN_TOOLS_KEY": KEY},
        )
        assert program.stdin is not None
        assert program.stdout is not None
        answer = await ask(program.stdout, program.stdin, "tools/call", name="add", arguments={"a": 1, "b": 1})  # type: ignore[arg-type]
        assert answer["result"]["content"][0]["text"] == "2"
        program.stdin.close()
        assert await program.wait() == 0
