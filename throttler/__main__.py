"""`python -m throttler`."""

import sys

from throttler.app import main

sys.exit(main(sys.argv[1:]))
