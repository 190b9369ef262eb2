"""Entry point of `python -m local_worker.adapter`."""

import sys

from local_worker.adapter.app import main

sys.exit(main(sys.argv[1:]))
