"""`python -m edlz.client` is the `edlz` command."""

import sys

from edlz.client.cli import main

sys.exit(main())
