"""Unpacks an archive: what a script's user does before a ``.zip`` is run. Run with ``python -c``.

    python -c … ARCHIVE FOLDER MOST_BYTES MOST_FILES

It exits with `REFUSED` and a reason on standard error if the archive is none that can be run. What
would lie outside the folder is put inside; a symbolic link becomes a file. Standard library only.
"""

from __future__ import annotations

import sys
import zipfile
import zlib

REFUSED = 3


def unpack(archive: str, folder: str, most_bytes: int, most_files: int) -> None:
    """Unpack *archive* into *folder*.

    Raises:
        ValueError: It has no ``__main__.py``, or is too large; the message says what to do.
        zipfile.BadZipFile, zlib.error, …: It is broken.
    """
    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        size = sum(member.file_size for member in members)
        if len(members) > most_files or size > most_bytes:
            raise ValueError(
                f"it holds {len(members)} files of {size} bytes; at most {most_files} files of "
                f"{most_bytes} bytes are unpacked. Leave out what the script does not need"
            )
        if not any(member.filename == "__main__.py" for member in members):
            raise ValueError(
                "it has no __main__.py at its top. Make it from within the script's folder, for "
                "example with: cd FOLDER && zip -r ../NAME.zip ."
            )
        for member in members:  # none yields more than the size it declares
            opened.extract(member, folder)


def main(arguments: list[str]) -> None:
    """Unpack what *arguments* say."""
    archive, folder, most_bytes, most_files = arguments
    try:
        unpack(archive, folder, int(most_bytes), int(most_files))
    except (ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        sys.stderr.write(str(error) or type(error).__name__)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main(sys.argv[1:])
