"""The fork server: a warm interpreter that runs nothing but forks of itself. Started as `python -sBP lr_main.py FD SETTINGS`.

It holds no expected answer and reads no file of the host. `serve` returns in a worker. A program has few of our frames below
its own.
"""

import sys

startup = frozenset(sys.modules)
sys.path.insert(0, __file__.rpartition("/")[0])

import marshal  # noqa: E402
import os  # noqa: E402

import lr_libc  # noqa: E402
import lr_server  # noqa: E402


def look_after_program(_: object) -> int:
    """Be the init of a program; a case in each fork."""
    if (init := worker.begin()) is None:
        return 0
    try:
        while init.take_case():
            if (pid := lr_libc.fork()) == 0:
                break
            init.watch(pid)
        else:
            worker.end()
            return 0
    except BaseException as trouble:
        init.report(trouble)
        return 0
    case = init.case
    try:
        case.enter()
        code = case.take_code()
        try:
            exec(code, case.namespace)
            case.call()
        except BaseException as error:
            case.failed(error)
        case.finish()
    finally:
        os._exit(1)


start = lr_libc.START(look_after_program)
worker = lr_server.serve(int(sys.argv[1]), marshal.loads(bytes.fromhex(sys.argv[2])), startup)
worker.run(start)
