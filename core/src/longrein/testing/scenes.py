"""The sessions of the adapter contract: what the policy says in each, and the limits it plays in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from longrein.testing.moves import Asked
from longrein.testing.scripted import Reply
from longrein.testing.stage import Scene, Step

if TYPE_CHECKING:
    from longrein.testing.adapter import AdapterContract

AWKWARD = (
    "# é 漢 🐎 ß \"double\" 'single' \\n \\\\ \\u00e9 \t $HOME `x` ${y} %s %(z)d <b>&amp;</b>\n\n"
    f"NESTED = {json.dumps(json.dumps({'a': {'b': ['c', json.dumps({'d': [None, True, 1e-9]})]}, '': {}}))}\n"
    'print("it said \\"yes\\"", 5)\n'
)
"""Text that breaks where arguments are quoted, joined, re-serialised or cut in the middle of a character."""
LONG = "".join(f"print({n}, 'line ä{n} 漢')\n" for n in range(80))
MAX_CALLS = 3
HANGS = "import time\ntime.sleep(600)\n"
FAILS = "raise SystemExit('not right yet')\n"


def scenes(contract: AdapterContract) -> Mapping[str, Sequence[Scene]]:
    """Return the scenes by name; those of one entry are played at once. "tokens" needs its budget from "calls"."""
    free = {"idle_s": 600.0, "timeout_s": 600.0}
    idle = {"idle_s": contract.patience_s, "timeout_s": 5 * contract.patience_s}
    hung = {"idle_s": 4 * contract.patience_s, "timeout_s": 6 * contract.patience_s}
    own = _Say(contract)
    played = [
        Scene("idle", [own.run("tail -f /dev/null")], limits=idle, check=HANGS),
        Scene("timeout", [lambda _: Reply("late", hold=contract.never)], limits={"timeout_s": contract.patience_s}),
        Scene("question", [own.question("Shall I go on? [y/N]"), contract.finish], limits=hung),
        Scene("calls", [own.more], limits={"max_calls": MAX_CALLS, **hung}, check=FAILS),
        Scene("tokens", [own.more], limits=hung, check=FAILS),
        Scene("failure", [lambda _: Reply("scripted failure", status=500)], limits=hung),
        Scene(
            "cut", [own.write({"solution.py": AWKWARD}), lambda _: Reply(fault="cut")], {"solution.py": AWKWARD}, check=FAILS, limits=hung
        ),
        Scene("unfinished", [own.unfinished({"solution.py": AWKWARD})], {"solution.py": AWKWARD}, limits=hung),
        Scene("proxy", [own.write({"solution.py": AWKWARD}), contract.finish], proxy=True, limits=hung),
    ]
    work = [
        Scene("first", [own.write({"solution.py": AWKWARD}), own.run("pwd"), contract.finish], {"solution.py": AWKWARD}, free),
        Scene("second", [own.several, contract.finish], {"solution.py": LONG}),
    ]
    return {"work": work, **{scene.name: [scene] for scene in played}}


def several(contract: AdapterContract) -> Mapping[str, str]:
    """Return the files that the second session writes in one reply."""
    return {"solution.py": LONG, "second.txt": "two\n", **({"empty.txt": ""} if contract.adapter.capabilities.tools else {})}


class _Say:
    """Steps made of a contract's moves."""

    def __init__(self, contract: AdapterContract) -> None:
        self._contract, self._n = contract, 0

    def write(self, files: Mapping[str, str]) -> Step:
        return lambda asked: self._contract.write(asked, files)

    def several(self, asked: Asked) -> Reply | None:
        """Write several files in one reply, or one where the agent cannot be told more."""
        return self._contract.write(asked, several(self._contract)) or self._contract.write(asked, {"solution.py": LONG})

    def run(self, command: str) -> Step:
        return lambda asked: self._contract.run(asked, command)

    def question(self, text: str) -> Step:
        return lambda asked: self._contract.question(asked, text)

    def more(self, asked: Asked) -> Reply | None:
        """Keep the agent going: a command, else another edit that its check will refuse."""
        self._n += 1
        reply = self._contract.run(asked, f"echo {self._n} of many, and so on and so on")
        return reply or self._contract.write(asked, {"solution.py": f"print({self._n!r} * 10, 'and so on and so on')\n"})

    def unfinished(self, files: Mapping[str, str]) -> Step:
        def step(asked: Asked) -> Reply | None:
            reply = self._contract.write(asked, files)
            return Reply(reply.text, reply.tool_calls, fault="no_finish") if reply else None

        return step
