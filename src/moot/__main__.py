"""`python -m moot`, for when the command is not on the path."""

import sys

from moot.cli import main

sys.exit(main())
