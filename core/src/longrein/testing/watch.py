# ruff: noqa: PTH115, PTH123, PTH208 - as in sandbox/init.py: pathlib costs 15 ms at every start
"""Runs an agent inside the sandbox and writes down what it opened, called and left: `python -I -S -c SOURCE JSON AGENT...`.

Standard library only. The plan is {"report": path, "proxy": bool}. With `proxy` the agent finds a proxy in its environment
that refuses everything and notes what was asked for, since a sandbox without a network tells nobody about attempts.
"""

import ctypes
import json
import os
import socket
import sys
import threading
import time

TICK_S = 0.03
LINGER_S = 1.0
"""How long children of an agent that has ended may take to end too."""
LISTEN = "0A"


def main() -> None:
    """Run the agent to its end, write the report and end as it did."""
    plan, argv = json.loads(sys.argv[1]), sys.argv[2:]
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    called: list[str] = []
    env = dict(os.environ)
    if plan["proxy"]:
        url = "http://127.0.0.1:" + str(proxy(called))
        env |= dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), url)
        env |= {"no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost", "NODE_USE_ENV_PROXY": "1"}
    agent = os.fork()
    if not agent:
        try:
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            os.write(2, ("cannot start " + argv[0] + ": " + str(error) + "\n").encode())
        os._exit(127)
    code, ports, left = follow(agent)
    report = {"ports": sorted(ports), "left": left, "called": called[:20]}
    with open(plan["report"], "w", encoding="utf-8") as file:
        json.dump(report, file)
    os._exit(code)


def follow(agent: int) -> tuple[int, set[int], list[str]]:
    """Return the agent's exit code, the ports that its tree listened on, and the command lines that outlived it."""
    code, ports, until = None, set(), 0.0
    while True:
        tree = descendants()
        ports |= listening(tree)
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == agent:
                    code, until = os.waitstatus_to_exitcode(ended[1]), time.monotonic() + LINGER_S
        except ChildProcessError:
            pass
        if code is not None:
            left = descendants()
            if not left or time.monotonic() > until:
                return code if code >= 0 else 128 - code, ports, [line for pid in left if (line := command(pid))]
        time.sleep(TICK_S)


def descendants() -> set[int]:
    """Return the pids below this process."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/" + entry + "/stat", "rb") as stat:
                    parents[int(entry)] = int(stat.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found |= new
    return found


def listening(tree: set[int]) -> set[int]:
    """Return the TCP ports that these processes listen on."""
    inodes = set()
    for pid in tree:
        try:
            folder = "/proc/" + str(pid) + "/fd/"
            links = [os.readlink(folder + name) for name in os.listdir(folder)]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    ports = set()
    for table in ("tcp", "tcp6") if inodes else ():
        try:
            with open("/proc/net/" + table, encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTEN and row[9] in inodes}
    return ports


def command(pid: int) -> str:
    """Return a process's command line, shortened; empty when it has ended."""
    try:
        with open("/proc/" + str(pid) + "/cmdline", "rb") as file:
            return file.read(200).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def proxy(called: list[str]) -> int:
    """Refuse whatever comes to a port of ours, note its first line, and return the port."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(16)

    def serve() -> None:
        while True:
            client, _ = server.accept()
            client.settimeout(5)
            try:
                called.append(client.recv(300).split(b"\r\n")[0].decode(errors="replace"))
                client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            except OSError:
                pass
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


if __name__ == "__main__":
    main()
