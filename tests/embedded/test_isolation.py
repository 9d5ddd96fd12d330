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
    names = ("api-key", "upload-key", "nextfire.db", "nextfire.db-wal")
    files = [user.stack.state / "embedded" / name for name in names]
    # Of the same user as scripts, if that is not root: they could change where the command sends
    # the key.
    files += [user.stack.state / name for name in ("lock", "stack.json", "logs/api.log")]
    assert all(file.exists() for file in files)
    paths = [str(file) for file in files]
    user.stack.put_script("default", "reads", READS)

    job = user.once(soon(), handler="reads", payload={"paths": paths})

    [run] = user.ended(job)
    assert run["state"] == "SUCCEEDED", run["stderr"]
