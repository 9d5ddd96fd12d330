"""What code that runs in a build leaves for the executor, which may be root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nextfire.adapters.packages.installer import Packages
from nextfire.adapters.packages.package_index import PackageIndex
from nextfire.domain.packages import PackagePolicy
from nextfire.domain.ports.scripts import Directive
from tests.indexes import Index, sdist
from tests.places import host_folder
from tests.security.packages.conftest import run, runner, script

PLANTS = """
import os
def build_wheel(folder, config_settings=None, metadata_directory=None):
    home = os.environ["HOME"]
    os.symlink("{victim}/written", home + "/script.py")
    os.symlink("{victim}", home + "/lib-of-others")
    os.rename(home + "/tmp", home + "/tmp-before")
    os.symlink("{victim}", home + "/tmp")
    os.makedirs(home + "/packages", exist_ok=True)
    if not os.fork():
        os.setsid()
        import time
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                os.rename(home + "/packages", home + "/packages-before")
                os.symlink("{victim}", home + "/packages")
                break
            except OSError:
                pass
        os._exit(0)
    raise SystemExit("built nothing")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="tests root's files")
def test_links_that_a_build_leaves_lead_root_nowhere(folder: Path, index: Index) -> None:
    victim = host_folder("test-victim-")
    try:
        (victim / "uv").mkdir()
        (victim / "uv" / "kept").write_text("root's")
        index.add("built", sdist("built", PLANTS.replace("{victim}", str(victim))))
        of = runner(folder, index, builds=True)

        end = run(of, script("built", body="import built; print(built.__file__)"))

        assert end.exit_code != 0
        assert sorted(path.name for path in victim.rglob("*")) == ["kept", "uv"]
        kept = [path for path in folder.rglob("kept") if path.is_file()]
        assert kept == [], "root's file was stored as a package"
    finally:
        shutil.rmtree(victim)


@pytest.mark.skipif(os.geteuid() != 0, reason="tests root's files")
def test_a_folder_of_packages_that_is_a_link_is_not_copied(folder: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "key").write_text("root's")
    made = tmp_path / "work" / "packages"
    made.parent.mkdir()
    made.symlink_to(closed)
    packages = Packages(root=folder, separate=True, index=PackageIndex(), policy=PackagePolicy())

    with pytest.raises(OSError, match="not a folder"):
        packages._keep(made, folder / "set", "acme", lambda: Directive.CONTINUE)  # noqa: SLF001

    assert not (folder / "set").exists()
