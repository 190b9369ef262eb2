"""`python -m endpoint_picker`."""

import sys

from endpoint_picker.app import main

sys.exit(main(sys.argv[1:]))
