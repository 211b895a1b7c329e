"""`python -m lookact` is `lookact`."""

import sys

from lookact.cli import main

sys.exit(main())
