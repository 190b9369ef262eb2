"""`python -m global_scheduler.endpoint_picker`."""

import sys

from global_scheduler.endpoint_picker.app import main

sys.exit(main(sys.argv[1:]))
