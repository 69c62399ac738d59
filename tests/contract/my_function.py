"""An agent as people have them: a coroutine function with a client and a tool loop."""

import json
import subprocess
from pathlib import Path

from longrein.function import agent

STRING = {"type": "string"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        },
    }
    for name, properties in {"write_file": {"path": STRING, "content": STRING}, "run_command": {"command": STRING}}.items()
]


def act(name, arguments):
    """Do one tool call."""
    if name == "write_file":
        Path(arguments["path"]).write_text(arguments["content"], encoding="utf-8")
        return "written"
    return subprocess.run(arguments["command"], shell=True, capture_output=True, text=True, check=False).stdout


@agent
async def my_agent(client, task):
    """Ask, act, and ask again until the model is done."""
    messages = [{"role": "user", "content": task.prompt}]
    while True:
        reply = await client.chat.completions.create(model=task.model, messages=messages, tools=TOOLS, stream=False)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        print(message.content)
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            said = act(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": said})


def plain(client, task):
    """Write one answer, without waiting for anything in between."""
    reply = client.chat.completions.create(model=task.model, messages=[{"role": "user", "content": task.prompt}])
    (task.workdir / "solution.py").write_text(reply.choices[0].message.content)
    print("files", sorted(task.files), "check", task.check, "cwd", Path.cwd() == task.workdir)


async def looks(client, task):
    """Look for what it should not see, then fail."""
    await client.chat.completions.create(model=task.model, messages=[{"role": "user", "content": task.prompt}])
    try:
        import longrein_deepcoder

        print("saw", longrein_deepcoder)
    except ImportError:
        print("saw nothing")
    raise ValueError("lost")
