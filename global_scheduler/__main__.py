"""`python -m global_scheduler`."""

import sys

from global_scheduler.app import main

sys.exit(main(sys.argv[1:]))
