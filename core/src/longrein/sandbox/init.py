"""The first process of a session: `python -I -S init.py JSON`, standard library only, few imports (it starts with every session).

It relays loopback to the capture socket (bubblewrap), sets the limits, starts the agent, watches the process tree, and
ends it when the agent exits, when a limit of the whole tree is passed, or when standard input, the engine's lifeline,
ends. Descriptor `ready_fd` carries "ready" once the agent runs, or a line that says why it does not.
"""

import json
import os
import resource
import signal
import socket
import sys
import threading
import time

MIB = 1 << 20
LIMIT_EXIT = 250  # told apart from the agent's own codes by the line on standard error
WATCH_S = 0.5


def main():
    plan = json.loads(sys.argv[1])
    if plan["subreaper"]:
        become_subreaper()
    if plan["relay_socket"]:
        listen(plan["relay_port"], plan["relay_socket"])
    agent = start(plan)
    threading.Thread(target=follow_engine, args=(plan,), daemon=True).start()
    threading.Thread(target=watch, args=(plan,), daemon=True).start()
    code = reap(agent)
    finish(plan, code)


def become_subreaper():
    import ctypes  # 10 ms that bubblewrap sessions save

    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def start(plan):
    """Fork and exec the agent, and say on `ready_fd` how it went."""
    failed, failure = os.pipe()  # closed by a successful exec
    agent = os.fork()
    if not agent:
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.setsid()
            set_limits(plan)
            os.chdir(plan["workdir"])
            os.execvp(plan["argv"][0], plan["argv"])
        except (OSError, ValueError) as error:
            os.write(failure, f"cannot start {plan['argv'][0]}: {error}".encode())
        finally:
            os._exit(127)
    os.close(failure)
    os.write(plan["ready_fd"], (os.read(failed, 4096) or b"ready") + b"\n")
    os.close(plan["ready_fd"])
    os.close(failed)
    return agent


def set_limits(plan):
    """Per-process limits. Not RLIMIT_AS: JavaScript engines reserve far more address space than they use."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (plan["file_size_mb"] * MIB,) * 2)
    resource.setrlimit(resource.RLIMIT_DATA, (plan["memory_mb"] * MIB,) * 2)


def watch(plan):
    """End the session when the tree as a whole has too many processes or too much memory."""
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        time.sleep(WATCH_S)
        pids = descendants(plan["subreaper"])
        used = sum(resident_pages(pid) for pid in pids) * page // MIB
        for name, value, limit in (("processes", len(pids), plan["max_processes"]), ("MiB of memory", used, plan["memory_mb"])):
            if value > limit:
                os.write(2, f"\nlongrein: session ended: {value} {name}, limit {limit}\n".encode())
                finish(plan, LIMIT_EXIT)


def descendants(subreaper):
    """Return the pids below this process; orphans come to it, or stand with it in a pid namespace of their own."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    parents[int(entry)] = int(stat.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue  # ended meanwhile
    if not subreaper:
        return set(parents) - {1, os.getpid()}
    found, new = set(), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found |= new
    return found


def resident_pages(pid):
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            fields = statm.read().split()
            return int(fields[1]) - int(fields[2])
    except (OSError, IndexError):
        return 0


def follow_engine(plan):
    """Return never: end the session when the engine says "stop", or dies, which is an end of input without it."""
    said = os.read(0, 4)
    finish(plan, 128 + signal.SIGKILL, abandoned=not said)


def reap(agent):
    """Reap every child until the agent ends; return its exit code, 128 + n for signal n."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:  # another thread is ending the session and was faster
            return LIMIT_EXIT
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


_ending = threading.Lock()


def finish(plan, code, abandoned=False):
    """Kill what is left of the tree and exit; called once, by whichever thread comes first."""
    _ending.acquire()
    if plan["subreaper"]:
        kill_tree()
        if abandoned:
            import shutil

            shutil.rmtree(plan["remove"], ignore_errors=True)
    os._exit(code)


def kill_tree():
    """Kill descendants until there are none; stopped first, so that none forks in between."""
    while pids := descendants(True):
        for sig in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                try:
                    os.kill(pid, sig)
                except OSError:
                    pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.005)


def listen(port, path):
    """Accept on loopback and forward each connection to the unix socket."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(64)
    threading.Thread(target=accept, args=(server, path), daemon=True).start()


def accept(server, path):
    while True:
        inner, _ = server.accept()
        outer = socket.socket(socket.AF_UNIX)
        try:
            outer.connect(path)
        except OSError:
            inner.close()
            continue
        for pair in ((inner, outer), (outer, inner)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One side has gone: the other must notice, or a dead client would look alive to the engine.
        for side in (source, target):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


if __name__ == "__main__":
    main()
