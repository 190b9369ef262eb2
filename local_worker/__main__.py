"""Entry point of `python -m local_worker`."""

import sys

from local_worker.app import main

sys.exit(main(sys.argv[1:]))
