"""Graph, labels and rows of a long session: 300 turns and 100,000 distinct tokens.

Bounds: under 2 s and 100 MB, its record under 5 MB, cost linear in distinct tokens: twice as many cost less than three times.
The graph alone reads more than the distinct tokens: the engine sends each prompt whole, and it is compared at memory speed.
"""

import json
import sys
import time
import tracemalloc

from longrein.capture.trace import Trace
from longrein.model import ModelCall, Outcome, PublicTask, Rollout, SessionResult, Usage, Verdict
from longrein.rollout.serialize import rollout_to_json
from longrein.turns import build_rows, label_calls

TASK = PublicTask("Write solution.py, which prints the sum of two integers.")
N_TURNS, N_TOKENS = 300, 100_000
REPLY_SHARE = 0.4


def session(n_turns, n_tokens):
    """Yield (call, whole prompt, all messages) for each turn; a message has about four characters a token."""
    n_new = n_tokens // n_turns
    n_reply = int(n_new * REPLY_SHARE)
    vocabulary = [f"w{n % 977:03d}" for n in range(n_tokens)]
    ids = [7 * n % 32_000 for n in range(n_tokens)]
    messages = [{"role": "system", "content": "You are a coding agent."}, {"role": "user", "content": TASK.prompt}]
    for turn in range(n_turns):
        start, asked, end = turn * n_new, (turn + 1) * n_new - n_reply, (turn + 1) * n_new
        if turn:
            messages.append({"role": "tool", "tool_call_id": "1", "content": f"{turn} " + " ".join(vocabulary[start:asked])})
        reply = {"role": "assistant", "content": f"{turn} " + " ".join(vocabulary[asked:end])}
        yield (
            ModelCall(
                id=f"call-{turn}",
                index=turn,
                parent_id=None,
                context_ids=(),
                prompt_len=0,
                sampled_ids=ids[asked:end],
                logprobs=[-(n % 997) / 331 for n in range(asked, end)],
                usage=Usage(asked, n_reply),
                reply=reply,
                finish_reason="stop",
            ),
            ids[:asked],
            list(messages),
        )
        messages.append(reply)


def measure(n_turns, n_tokens):
    """Return the CPU seconds of the graph, those of labels and rows, and the trajectory; best of three."""
    made = list(session(n_turns, n_tokens))
    times = []
    for _ in range(3):
        start = time.process_time()
        trace = Trace()
        for call, prompt, messages in made:
            trace.add(call, prompt, messages)
        linked = time.process_time()
        trajectory = label_calls(trace.calls, trace.tools, task=TASK)
        rows = build_rows(trajectory, rollout_id="r", agent="a", token_budget=None).rows
        times.append((linked - start, time.process_time() - linked))
        assert [len(row.input_ids) for row in rows] == [n_tokens // n_turns * n_turns]
    graph, labels = map(min, zip(*times, strict=True))
    return graph, labels, trajectory


def peak_mb(n_turns, n_tokens):
    """Return the peak of memory that Python allocated for graph, labels and rows of a session arriving call by call."""
    tracemalloc.start()
    trace = Trace()
    for call, prompt, messages in session(n_turns, n_tokens):
        trace.add(call, prompt, messages)
    trajectory = label_calls(trace.calls, trace.tools, task=TASK)
    build_rows(trajectory, rollout_id="r", agent="a", token_budget=None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def record_mb(trajectory):
    """Return the size of the rollout's line in the record."""
    result = SessionResult("s", "a", Outcome("completed"), trajectory)
    rollout = Rollout("r", "g", "a", "practice", "t", "0", 0, 0, result, Verdict("passed", 1.0))
    return len(json.dumps(rollout_to_json(rollout))) / 1e6


def main():
    """Print each figure and whether its bound holds; exit 1 when one does not."""
    graph, labels, trajectory = measure(N_TURNS, N_TOKENS)
    figures = [
        ("graph, labels and rows [s]", graph + labels, 2.0),
        ("peak memory [MB]", peak_mb(N_TURNS, N_TOKENS), 100.0),
        ("record [MB]", record_mb(trajectory), 5.0),
        ("graph against half the tokens [x]", graph / measure(N_TURNS, N_TOKENS // 2)[0], 3.0),
        ("labels and rows against half the turns and tokens [x]", labels / measure(N_TURNS // 2, N_TOKENS // 2)[1], 3.0),
    ]
    for name, value, bound in figures:
        print(f"{name}: {value:.2f} (bound {bound:g}: {'holds' if value < bound else 'DOES NOT HOLD'})")
    sys.exit(any(value >= bound for _, value, bound in figures))


if __name__ == "__main__":
    main()
