"""Scripts do not reach the data of the embedded stack that runs them."""

from tests.e2e.user import User, soon

READS = """
import json, sys
from pathlib import Path
for path in json.load(sys.stdin)["paths"]:
    try:
        Path(path).read_bytes()
    except OSError:
        continue
    sys.exit(f"{path} can be read")
"""


def test_a_script_reads_neither_the_key_nor_the_database_nor_secrets(user: User) -> None:
    data = user.stack.state / "embedded"
    names = ("api-key", "upload-key", "nextfire.db", "nextfire.db-wal")
    paths = [str(data / name) for name in names]
    assert all((data / name).exists() for name in names)
    user.stack.put_script("default", "reads", READS)

    job = user.once(soon(), handler="reads", payload={"paths": paths})

    [run] = user.ended(job)
    assert run["state"] == "SUCCEEDED", run["stderr"]
