"""Entry point of `python -m engine_adapter`."""

import sys

from engine_adapter.app import main

sys.exit(main(sys.argv[1:]))
