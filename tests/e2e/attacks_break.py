"""More attacks: break out, outlive the session, cheat the grader. See `attacks.py`."""

from __future__ import annotations

from tests.e2e.attacks import Attack

RIGHT = "print(2 * int(input()))"

ATTACKS = (
    # Break out ------------------------------------------------------------------------------------------------------
    Attack(
        "trace",
        """
import platform
trace, read, write = {"x86_64": (101, 310, 311), "aarch64": (117, 270, 271)}[platform.machine()]
for pid in (1, os.getppid(), os.getpid()):
    for request in (0, 16, 0x4206): refused("ptrace", lambda: syscall(trace, request, pid, 0, 0))
    refused("read", lambda: syscall(read, pid, 0, 0, 0, 0, 0))
    refused("write", lambda: syscall(write, pid, 0, 0, 0, 0, 0))
for name in ("mem", "environ", "maps", "syscall", "auxv", "fd/0", "fd/1", "root/etc", "cwd/x", "exe"):
    refused(name, lambda: os.read(os.open(f"/proc/1/{name}", os.O_RDONLY), 1))
refused("mem", lambda: os.open("/proc/1/mem", os.O_RDWR))
""",
    ),
    Attack(
        "signals",
        """
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV, signal.SIGHUP):
    os.kill(1, number)
for pid in (300, 1000, 2**22 - 1, os.getppid() + 100000):
    refused(pid, lambda: os.kill(pid, signal.SIGKILL) if pid != os.getpid() else int("x"))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "60"])
os.kill(-1, signal.SIGTERM)
open("solution.py", "w").write(ask("solve"))
""",
        reward=1.0,
    ),
    Attack(
        "namespaces",
        """
import platform
unshare, setns, mount, chroot = {"x86_64": (272, 308, 165, 161), "aarch64": (97, 268, 40, 51)}[platform.machine()]
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x10020000): refused("unshare", lambda: syscall(unshare, flag))
refused("setns", lambda: syscall(setns, os.open("/proc/self/ns/net", os.O_RDONLY), 0))
refused("mount", lambda: syscall(mount, 0, 0, 0, 0, 0))
refused("chroot", lambda: os.chroot("/tmp"))
refused("unshare", lambda: subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "x", "/tmp"], check=True, capture_output=True))
refused("bwrap", lambda: subprocess.run(["bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"], check=True, capture_output=True))
refused("become", lambda: os.setuid(0))
refused("device", lambda: os.mknod("/tmp/disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0)))
refused("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))
refused("host", lambda: socket.sethostname("x"))
""",
    ),
    Attack(
        "kernel-objects",
        """
import platform
x86 = platform.machine() == "x86_64"
for number in ((248, 250, 321, 298, 323, 425, 64, 68, 103) if x86 else (217, 219, 280, 241, 282, 425, 190, 186, 116)):
    refused(number, lambda: syscall(number, 0, 0, 0, 0, 0))
""",
    ),
    Attack(
        "write-anywhere",
        """
prefix = os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))
library = os.path.dirname(os.__file__)
folders = ["/", "/usr", "/usr/bin", "/usr/lib", "/etc", "/opt", "/opt/longrein", "/opt/longrein/bin", "/home", "/dev", "/root", prefix,
           prefix + "/lib", prefix + "/bin", "/proc/sys/kernel", library, library + "/site-packages"]
for folder in folders: refused(folder, lambda: open(folder + "/planted", "w"))
# Opened and not written: where the sandbox has a hole, the machine that runs the tests must not be changed by it.
for file in ("/etc/passwd", "/opt/longrein/init.py", "/opt/longrein/policy", sys.executable, os.__file__):
    refused(file, lambda: os.open(file, os.O_WRONLY))
    refused(file, lambda: os.rename(file, "/tmp/taken"))
    refused(file, lambda: os.chmod(file, 0o777))
for base, below, names in os.walk("/proc"):
    below[:] = [name for name in below if not name.isdigit() and name not in ("self", "thread-self")]
    for name in names: refused(base + "/" + name, lambda: os.open(os.path.join(base, name), os.O_WRONLY | os.O_NONBLOCK))
for name in ("null", "zero", "full", "random", "urandom", "tty"): refused(name, lambda: os.chmod("/dev/" + name, 0o666))
refused("python", lambda: os.remove("/opt/longrein/bin/python3"))
""",
    ),
    # Outlive the session --------------------------------------------------------------------------------------------
    Attack(
        "outlive",
        """
token=$TOKEN
setsid sh -c "trap '' TERM HUP INT; while :; do sleep 0.1; : $token; done" &
nohup sleep $token >/dev/null 2>&1 &
(setsid sh -c "sleep $token & sleep $token" &) &
python3 -c "
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(256):
            try: os.close(fd)
            except OSError: pass
        while True: time.sleep(0.1)
"
echo refused 1
""",
        shell=True,
    ),
    Attack(
        "stop-oneself",
        """
n_refused = 1
child = os.fork()
if not child:
    os.setsid(); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)
os.waitpid(child, os.WUNTRACED)
""",
    ),
    # Cheat the grader -----------------------------------------------------------------------------------------------
    Attack(
        "write-late",
        f"""
n_refused = 1
open("solution.py", "w").write("print(0)")
if not os.fork():
    os.setsid(); os.close(1); os.close(2)
    agent = os.getppid()
    while os.getppid() == agent: time.sleep(0.001)
    time.sleep(0.3)
    open("solution.py", "w").write({RIGHT!r})
""",
    ),
    Attack(
        "linked-solution",
        """
n_refused = 1
there = os.environ["TASKS"] + "/solution.py"
for target in (there, "/proc/self/root" + there, "../.." + there):
    if os.path.lexists("solution.py"): os.remove("solution.py")
    os.symlink(target, "solution.py")
    if os.path.exists("solution.py"): won(target)
os.symlink(os.environ["TASKS"], "tests")
os.symlink("/", "root")
""",
    ),
    Attack(
        "hard-links",
        """
for target in ("/etc/passwd", "/usr/bin/env", sys.executable, "/opt/longrein/init.py", "/proc/1/cmdline"):
    refused(target, lambda: os.link(target, "linked"))
open("a", "w").write(ask("solve"))
os.link("a", "solution.py")
""",
        reward=1.0,
    ),
    Attack("fifo", "n_refused = 1; os.mkfifo('solution.py'); os.mkfifo('run_examples.fifo')"),
    Attack(
        "odd-names",
        """
n_refused = 1
open("solution.py", "w").write(ask("solve"))
for name in (b"\\xff\\xfe", b"new\\nline", b"a" * 255, b" ", b"-rf", b"..x", b"\\x1b[31m", "\\u202e".encode(), b"solution.py\\n"):
    open(name, "w").write("x")
for i in range(1500):
    os.mkdir("d"); os.chdir("d")
os.chmod(".", 0)
""",
        reward=1.0,
    ),
    Attack(
        "crowd-out",
        """
n_refused = 1
for i in range(1500): open(f"junk{i}", "w").write("x" * 30000)
open("solution.py", "w").write(ask("solve"))
""",
        reward=1.0,
        quick=False,
    ),
    Attack(
        "planted-modules",
        """
n_refused = 1
evil = "import os, sys\\nfor fd in (1, 2):\\n    os.write(fd, b'77029546 8')\\nos._exit(0)\\n"
folders = [".", os.environ["HOME"], os.path.expanduser(f"~/.local/lib/python3.{sys.version_info[1]}/site-packages"), "/tmp"]
for folder in folders:
    os.makedirs(folder, exist_ok=True)
    for name in ("json", "random", "sitecustomize", "usercustomize", "marshal", "encodings", "lr_case", "lr_init", "site", "os"):
        open(f"{folder}/{name}.py", "w").write(evil)
    open(f"{folder}/evil.pth", "w").write("import os; os._exit(0)\\n")
    open(f"{folder}/pyvenv.cfg", "w").write("home = /tmp\\n")
open("solution.py", "w").write("print(1)\\n")
""",
    ),
    Attack(
        "grader-search",
        """
n_refused = 1
open("solution.py", "w").write('''
import gc, os, sys
n = int(input())
frame = sys._getframe()
while frame:
    for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
        if "77029546" in repr(value)[:100000]: print(77029546); os._exit(0)
    frame = frame.f_back
for base, _, names in os.walk("/"):
    if base.startswith(("/usr", "/sys")): continue
    for name in names:
        try:
            fd = os.open(os.path.join(base, name), os.O_RDONLY | os.O_NONBLOCK)
            data = os.read(fd, 1 << 16); os.close(fd)
        except OSError: continue
        if b"77029546" in data and b"sys._getframe" not in data: print(77029546); os._exit(0)
print(8 if n == 4 else 0)
''')
""",
        quick=False,
    ),
)
