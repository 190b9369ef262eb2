"""`python -m cli.child MODULE ARGUMENTS...`: run a module as a process that ends with the one that has started it.

Its standard input is a pipe to which nobody writes, and which ends with the parent however that ends: a parent that is
killed with SIGKILL, or for want of memory, cannot end its services.
"""

import os
import runpy
import signal
import sys
import threading

STANDARD_INPUT = 0


def main() -> None:
    """Run the module that the command line names, in this process."""
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_parent() -> None:
    os.read(STANDARD_INPUT, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
