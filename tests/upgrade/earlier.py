"""An earlier version of the product, whose processes run together with those of this one.

To freeze the code of a COMMIT in the archive (about 470 KB):

    git archive COMMIT layers functions | xz -9e > tests/upgrade/earlier.tar.xz
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).with_name("earlier.tar.xz")
_PACKAGES = ("", "layers")


def unpacked(folder: Path) -> Path:
    """Unpack the earlier version into *folder*, and return the search path of its modules."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return Path(os.pathsep.join(str(folder / each) for each in _PACKAGES))
