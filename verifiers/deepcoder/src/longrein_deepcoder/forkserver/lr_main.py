"""The fork server: a warm interpreter that runs nothing but forks of itself. Started as `python -sBP lr_main.py FD SETTINGS`.

It holds no expected answer and reads no file of the host. `serve` returns in the init of a program, `next_case` in a process
that is to run one case, so that the program runs at the bottom of the stack, as under a real interpreter.
"""

import sys

startup = frozenset(sys.modules)
sys.path.insert(0, __file__.rpartition("/")[0])

import marshal  # noqa: E402

import lr_server  # noqa: E402

init = lr_server.serve(int(sys.argv[1]), marshal.loads(bytes.fromhex(sys.argv[2])), startup)
case = init.next_case()
case.enter()
try:
    exec(case.code, case.namespace)
    case.call()
except BaseException as error:
    case.failed(error)
case.finish()
