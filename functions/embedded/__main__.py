"""Runs the embedded stack until SIGTERM or SIGINT: ``python -P -m functions.embedded``.

The environment variables `NEXTFIRE_…` hold the settings that all parts share. ``-P`` keeps the
working folder off the module path: scripts may be able to write there.
"""

from __future__ import annotations

import sys

from functions.embedded.parts import main

if __name__ == "__main__":
    sys.exit(main())
