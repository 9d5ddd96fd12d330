"""Unpacks the archive of a ``.zip`` script, as the script's user. Run with ``python -c``.

    python -c … ARCHIVE FOLDER MOST_BYTES MOST_FILES

If the archive cannot be run, the program exits with `REFUSED` and prints the reason to standard
error. Paths that lead outside the folder are moved inside; symbolic links become files. Standard
library only.
"""

from __future__ import annotations

import errno
import sys
import zipfile

REFUSED = 3
_OF_THE_HOST = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR),
}
"""Errors that another attempt may not have. Others are in the archive: a name that is too long, or
one that is both a file and a folder.
"""


def unpack(archive: str, folder: str, most_bytes: int, most_files: int) -> None:
    """Unpack *archive* into *folder*.

    Raises:
        ValueError: The archive has no ``__main__.py``, or is too large. The message holds the
            remedy.
        zipfile.BadZipFile, zlib.error, …: The archive is broken.
        OSError: A file cannot be written.
    """
    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        size = sum(member.file_size for member in members)
        if len(members) > most_files or size > most_bytes:
            raise ValueError(
                f"it has {len(members)} files of {size} bytes; the maximum is {most_files} files "
                f"of {most_bytes} bytes. Remove files that the script does not need"
            )
        if not any(member.filename == "__main__.py" for member in members):
            raise ValueError(
                "it has no __main__.py at the top level. Create it inside the script's folder, for "
                "example with: cd FOLDER && zip -r ../NAME.zip ."
            )
        for member in members:  # zipfile never extracts more than the declared size
            opened.extract(member, folder)


def main(arguments: list[str]) -> None:
    """Unpack. *arguments*: see the module docstring."""
    archive, folder, most_bytes, most_files = arguments
    try:
        unpack(archive, folder, int(most_bytes), int(most_files))
    except MemoryError:
        sys.stderr.write("it needs more memory than a script may have")
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - zipfile raises any of a broken archive
        sys.stderr.write(str(error) or type(error).__name__)
        sys.exit(1 if getattr(error, "errno", None) in _OF_THE_HOST else REFUSED)


if __name__ == "__main__":
    main(sys.argv[1:])
