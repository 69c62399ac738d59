"""The fork server: a warm interpreter that runs nothing but forks of itself. Started as `python -sBP FOLDER FD SETTINGS`.

It holds no expected answer and reads no file of the host. `serve` returns in a process that is to run one case, so that
the program runs at the bottom of the stack, as under a real interpreter.
"""

import sys

import lr_case
import lr_server

case = lr_server.serve(int(sys.argv[1]), sys.argv[2])
lr_case.enter(case)
try:
    exec(case.code, case.namespace)
    case.call()
except BaseException as error:
    case.failed(error)
case.finish()
