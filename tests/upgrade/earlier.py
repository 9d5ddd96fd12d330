"""An earlier version of the product, whose processes run together with those of this one.

To freeze a COMMIT in the archive (about 660 KB):

    git archive COMMIT layers functions infra cdk.json pyproject.toml uv.lock \
        | xz -9e > tests/upgrade/earlier.tar.xz
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


def checkout(folder: Path, *, like: Path) -> Path:
    """Unpack the earlier version into *folder*, from which it can be deployed as from the checkout
    *like*, with which it shares downloads and builds. Returns the folder.
    """
    unpacked(folder)
    cache = like / ".nextfire"
    cache.mkdir(exist_ok=True)
    folder.joinpath(cache.name).symlink_to(cache)
    # A folder that is first on the path provides all modules of its version.
    for module in folder.joinpath("layers").glob("nextfire*"):
        folder.joinpath(module.name).symlink_to(module)
    return folder
