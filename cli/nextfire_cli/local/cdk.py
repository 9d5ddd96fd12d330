"""The CDK command line: npm's `aws-cdk`, pinned, run by the Node of the virtual environment."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "2.1148.1"
"""npm's `latest` is an older line that cannot read the output of the current library."""
INTERPRETER = "NEXTFIRE_INTERPRETER"
"""Environment variable: the Python that runs the scripts of a local stack."""
SCRIPT_START = "NEXTFIRE_SCRIPT_START"
"""Environment variable: whether these scripts may be forked."""


def inherited_environment() -> dict[str, str]:
    """This process's environment for a child, with the virtual environment's tools first.

    AWS variables are removed: credentials, profile and endpoint of the user. So are the settings
    of nextfire, except the Python that runs the scripts and how it starts.
    """
    kept = (INTERPRETER, SCRIPT_START)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(("AWS_", "CDK_", "NEXTFIRE_"))
    }
    tools = str(Path(sys.prefix) / "bin")
    environment["PATH"] = os.pathsep.join([tools, environment.get("PATH", os.defpath)])
    return environment


def installed_cdk(cache: Path) -> Path:
    """The `cdk` program under *cache*, fetched from the npm registry the first time.

    Raises:
        subprocess.CalledProcessError: npm failed; see `stderr`.
    """
    folder = cache / f"aws-cdk-{VERSION}"
    program = folder / "node_modules" / "aws-cdk" / "bin" / "cdk"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="installing-") as scratch:
        fresh = Path(scratch) / "cdk"
        fresh.mkdir()
        fresh.joinpath("package.json").write_text(json.dumps({"private": True}))
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", f"aws-cdk@{VERSION}"],
            cwd=fresh,
            env=inherited_environment(),
            check=True,
            capture_output=True,
            text=True,
        )
        try:
            fresh.rename(folder)
        except OSError:
            if not program.exists():  # not installed by another process meanwhile
                raise
            shutil.rmtree(fresh)
    return program
