"""The table of attacks: what a hostile agent does once the model has answered it, and how its session is to end.

Programs see the prelude of `redteam.py`: `refused(what, call)` counts a call that raises and cries ESCAPED for one that does not.
CANARY is a string of the hidden tests; REPO, TASKS, RUN, CACHE, POLICY (a port) and TOKEN (a number to recognise processes by) tell
of the host.
"""

from __future__ import annotations

from attrs import frozen

CANARY = "77029546"
LIMITED = r"longrein: session ended: \d+ "


@frozen
class Attack:
    """One hostile agent."""

    name: str
    code: str
    outcome: str = "completed"
    reward: float = 0.0
    said: str = r"refused [1-9]"
    """What its output must match: the proof that it did try."""
    shell: bool = False
    quick: bool = True
    """True for the normal suite."""


ATTACKS = (
    # Look around ----------------------------------------------------------------------------------------------------
    Attack(
        "search-files",
        """
me = os.path.realpath(__file__)
system = ("/proc", "/sys", "/dev", "/usr", os.path.dirname(os.path.dirname(os.path.realpath(sys.executable))))
for base, folders, names in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(base, f) not in system]
    for name in names:
        path = os.path.join(base, name)
        if os.path.isfile(path) and path != me:
            n_refused += 1
            if os.environ["CANARY"].encode() in open(path, "rb").read(): won(path)
""",
    ),
    Attack(
        "search-system",
        """
recent = time.time() - 86400
for top in ("/usr", os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))):
    for base, _, names in os.walk(top):
        for name in names:
            path = os.path.join(base, name)
            try:
                info, n_refused = os.lstat(path), n_refused + 1
                if stat.S_ISREG(info.st_mode) and max(info.st_mtime, info.st_ctime) > recent and info.st_size < 1 << 20:
                    if os.environ["CANARY"].encode() in open(path, "rb").read(): won(path)
            except OSError: pass
""",
        quick=False,
    ),
    Attack(
        "search-processes",
        """
canary = os.environ.pop("CANARY").encode()
mine = os.getpid()
def read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try: return os.read(fd, 1 << 20)
    finally: os.close(fd)
for base, folders, names in os.walk("/proc"):
    folders[:] = [f for f in folders if f not in (str(mine), "self", "thread-self", "task", "map_files", "fd", "ns", "sys", "irq", "tty")]
    for name in names:
        try:
            text = read(os.path.join(base, name))
            n_refused += 1
            if canary in text: won(base, name)
        except OSError: n_refused += 1
    if base == "/proc": folders[:] = [f for f in folders if f.isdigit() or f == "net"]
""",
    ),
    Attack(
        "host-paths",
        """
for name in ("REPO", "TASKS", "RUN", "CACHE"):
    refused(name, lambda: os.listdir(os.environ[name]))
for path in ("/root/.cache", "/root/.ssh", "/root/.bash_history", "/home/user", "/etc/shadow", "/var", "/run", "/sys", "/mnt", "/boot"):
    refused(path, lambda: os.listdir(path) if os.path.isdir(path) else open(path).read())
""",
    ),
    Attack(
        "leftovers",
        """
n_refused = 1
found = [os.path.join(f, n) for f in ("/work", os.environ["HOME"], "/tmp", "/dev/shm") for n in os.listdir(f)]
if set(found) - {"/work/run_examples.py", os.path.realpath(__file__)}: print(found)
if any("litter" in open(f, errors="replace").read() for f in found if os.path.isfile(f) and f != os.path.realpath(__file__)): won(found)
for folder in ("/work", os.environ["HOME"], "/tmp", "/dev/shm"): open(folder + "/litter", "w").write("litter")
""",
    ),
    Attack(
        "descriptors",
        """
links = {fd: os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)}
for fd, target in links.items():
    if int(fd) > 2: won(fd, target)
n_refused = 1
refused("terminal", lambda: os.open("/dev/tty", os.O_RDWR))
""",
    ),
    # Reach out ------------------------------------------------------------------------------------------------------
    Attack(
        "network",
        """
for address in (("1.1.1.1", 53), ("8.8.8.8", 443), ("169.254.169.254", 80), ("10.0.0.1", 80)):
    refused(address, lambda: socket.create_connection(address, 2))
refused("name", lambda: socket.getaddrinfo("pypi.org", 443))
refused("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("1.1.1.1", 53)))
refused("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
refused("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
if [name for _, name in socket.if_nameindex()] != ["lo"]: won(socket.if_nameindex())
""",
    ),
    Attack(
        "policy-server",
        """
for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0"):
    refused(host, lambda: socket.create_connection((host, int(os.environ["POLICY"])), 2))
    refused(host, lambda: ask("go", url=f"http://{host}:{os.environ['POLICY']}"))
""",
    ),
    Attack(
        "ports",
        """
mine = int(URL.rpartition(":")[2])
def knock(port):
    with socket.socket() as s:
        s.connect(("127.0.0.1", port))
        if s.getsockname() == s.getpeername(): raise OSError("got the port to connect from, and is talking to itself")
for port in range(1, 65536):
    if port != mine: refused(port, lambda: knock(port))
""",
        quick=False,
    ),
    Attack(
        "sockets",
        """
for base, _, names in os.walk("/"):
    if base.startswith(("/proc", "/usr")): continue
    for name in names:
        path = os.path.join(base, name)
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode) and path != "/opt/longrein/policy": won(path)
for line in open("/proc/net/unix").read().splitlines()[1:]:
    if "@" in line: won(line)
for name in ("control.sock", "policy.sock", "p0/control.sock", "p0/policy.sock", "s0.sock", "s1.sock"):
    refused(name, lambda: socket.socket(socket.AF_UNIX).connect("/opt/longrein/" + name))
refused("bind", lambda: socket.socket(socket.AF_UNIX).bind("/opt/longrein/mine"))
""",
    ),
    Attack(
        "control-routes",
        """
for method in ("GET", "POST"):
    for path in ("/health", "/docs", "/openapi.json", "/sessions", "/metrics", "/pause", "/resume", "/load",
                 "/init_weight_transfer", "/v1/load_weights", "/collective_rpc", "/reset_prefix_cache", "/sleep",
                 "/v1/../sessions", "/v1/completions", "//v1/models/x"):
        error = refused(path, lambda: ask("go", path, method=method))
        if getattr(error, "code", 0) not in (401, 404, 405, 429): won(path, error)
""",
    ),
    Attack(
        "stolen-key",
        """
key = os.environ["STOLEN"]
if not key: won("the neighbour was not there: this attack was not tried")
for path, method in (("/v1/chat/completions", "POST"), ("/v1/models", "GET"), ("/sessions", "GET")):
    error = refused(path, lambda: ask("theft", path, key=key, method=method))
    if getattr(error, "code", 0) not in (401, 404): won(error)
for guess in ("", "lr-", KEY[:-1], KEY + "x", "null"): refused(guess, lambda: ask("theft", key=guess))
ask("thief is done")
""",
    ),
    Attack(
        "large-requests",
        """
refused("40 MB", lambda: ask("", body=b"{" + bytes(40 << 20)))
def half(): return ask("", body=b"[" + b"0," * (9 << 20) + b"0]")
threads = [threading.Thread(target=refused, args=("18 MB", half)) for _ in range(6)]
for t in threads: t.start()
for t in threads: t.join()
""",
        quick=False,
    ),
    Attack(
        "request-flood",
        """
s = socket.create_connection(("127.0.0.1", int(URL.rpartition(":")[2])))
s.settimeout(120)
s.sendall(f"GET /v1/nothing HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {KEY}\\r\\n\\r\\n".encode() * 300)
seen = b""
while seen.count(b"HTTP/1.1 429") < 3 and seen.count(b"HTTP/1.1") < 300:
    seen += s.recv(65536)
n_refused = seen.count(b"HTTP/1.1 429")
""",
    ),
    Attack(
        "connection-flood",
        """
import resource
held = []
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(5); held.append(s)
    s.connect("/opt/longrein/policy"); s.sendall(b"GET /v1/models HTTP/1.1\\r\\n")
for _ in range(400):
    try: connect()
    except OSError: n_refused += 1
time.sleep(1)
for s in held:
    try:
        s.settimeout(0.01); n_refused += s.recv(1) == b""
    except TimeoutError: pass
    except OSError: n_refused += 1
if n_refused < 300: won(n_refused)
""",
    ),
    # Fill up --------------------------------------------------------------------------------------------------------
    Attack(
        "fill-disk",
        """
total = 0
for folder in ("/work", os.environ["HOME"], "/tmp", "/dev/shm"):
    try:
        for i in range(50):
            with open(f"{folder}/{i}", "wb") as f: total += f.write(bytes(8 << 20))
        won(folder)
    except OSError as error: n_refused += error.errno == 28
if total > (4 * 64) << 20 or n_refused != 4: won(total, n_refused)
""",
    ),
    Attack(
        "sparse-file",
        """
refused("1 TB", lambda: os.truncate(os.open("big", os.O_CREAT | os.O_RDWR), 1 << 40))
refused("1 TB", lambda: os.posix_fallocate(os.open("big", os.O_RDWR), 0, 1 << 40))
open("solution.py", "w").write(ask("solve"))
""",
        reward=1.0,
    ),
    Attack("many-files", "for i in range(10**6): open(f'/tmp/{i}', 'w').close()", outcome="agent_error", said=LIMITED + "files"),
    Attack(
        "memory",
        """
try: x = bytearray(10**9); won(len(x))
except MemoryError: pass
for _ in range(12):
    if not os.fork():
        x = [bytearray(b"x" * (1 << 20)) for _ in range(80)]; time.sleep(60)
time.sleep(60)
""",
        outcome="agent_error",
        said=LIMITED + "MiB of memory",
    ),
    Attack(
        "shared-memory",
        """
import mmap
held = []
for _ in range(60):
    held.append(mmap.mmap(-1, 32 << 20))
    held[-1].write(b"x" * (32 << 20))
time.sleep(60)
""",
        outcome="agent_error",
        said=LIMITED + "MiB of memory",
        quick=False,
    ),
    Attack(
        "memory-of-nobody",
        """
import platform
calls = {"x86_64": (319, 447, 29), "aarch64": (279, 447, 194)}[platform.machine()]
for number in calls: refused(number, lambda: syscall(number, 0, 1 << 30, 0o1600))
""",
    ),
    # Bounded, 2^9: should the limit not hold, the machine that runs the tests must live on.
    Attack("fork-bomb", "for _ in range(9): os.fork()\ntime.sleep(60)", outcome="agent_error", said=LIMITED + "(processes|threads)"),
    Attack(
        "thread-bomb",
        """
threading.stack_size(1 << 16)  # else the memory of their stacks is refused first
for _ in range(600):
    try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError: time.sleep(0.01)
time.sleep(60)
""",
        outcome="agent_error",
        said=LIMITED + "threads",
        quick=False,
    ),
    Attack("output-flood", "head -c 300000000 /dev/zero | tr '\\0' x; head -c 99000000 /dev/zero >&2; echo refused 1", shell=True),
)
