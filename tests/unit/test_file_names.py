"""File names for texts from users."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextfire.adapters.files.folder import Folder, file_name, text_of

TEXTS = ("report.py", ".hidden", "..", "%", "%2F", "%2E", "a/b", "/", "\0", "a%00", "über uns & co")


@pytest.mark.parametrize("text", TEXTS)
def test_a_name_stays_in_its_folder_and_can_be_read_back(text: str, tmp_path: Path) -> None:
    name = file_name(text)

    assert text_of(name) == text
    assert (tmp_path / name).resolve().parent == tmp_path
    assert not name.startswith(".")


def test_different_texts_have_different_files(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for text in TEXTS:
        folder.write(tmp_path / file_name(text), text.encode())

    assert sorted(map(text_of, folder.names(tmp_path))) == sorted(TEXTS)
    assert [folder.read(tmp_path / file_name(text)) for text in TEXTS] == [
        text.encode() for text in TEXTS
    ]


def test_files_in_folders_are_listed_by_their_places(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    places = ["db", "team/a b/key", "team/db"]
    for place in places:
        folder.write(folder.path(f"secrets/{place}"), b"")

    assert folder.below(folder.path("secrets")) == places
