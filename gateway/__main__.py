"""`python -m gateway`."""

import sys

from gateway.app import main

sys.exit(main(sys.argv[1:]))
