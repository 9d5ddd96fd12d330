"""The search for a local stack in folders of other users."""

from __future__ import annotations

from nextfire.client.folder import above
from tests.other_user import as_other_user
from tests.places import open_folder


def test_a_folder_that_cannot_be_entered_has_no_files() -> None:
    def act() -> None:
        (folder / "closed").chmod(0)
        assert above(folder / "closed" / "below", "file") is None
        assert above(folder, "closed/file") is None

    with open_folder("others-") as folder:
        folder.chmod(0o777)
        assert as_other_user((folder / "closed").mkdir) == 0
        assert as_other_user(act) == 0
        (folder / "closed").chmod(0o700)
