"""Fetches scripts from files."""

from __future__ import annotations

from pathlib import Path

from nextfire.adapters.files.script_versions import ScriptVersions, VersionFile
from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.script import MAX_SCRIPT_BYTES, FetchedScript, ScriptSource, upload_remedy


class FileScriptStore:
    """`ScriptStore` in the folder *root*: the URL ``s3://<bucket>/<key>`` is the place
    ``<bucket>/<key>`` of `ScriptVersions`. A new upload takes effect at once.
    """

    def __init__(self, root: Path) -> None:
        self._versions = ScriptVersions(root)

    def fetch(self, source: ScriptSource) -> FetchedScript:
        versions = self._versions.list(source.url.removeprefix("s3://"))
        if not versions or (source.sha256 is None and versions[0].sha256 is None):
            raise NotFoundError("script", source.url, upload_remedy(source.url))
        for version in versions:
            if source.sha256 in {None, version.sha256}:
                return self._read(version, source.url)
        raise InvalidInputError(
            "script",
            source.url,
            f"no version has the digest sha256:{source.sha256} to which the job is pinned; "
            f"the latest version has sha256:{versions[0].sha256}",
            "Upload that version again, or pin the job to another digest.",
        )

    def _read(self, version: VersionFile, url: str) -> FetchedScript:
        content = self._versions.content(version)
        if content is None:
            raise NotFoundError("script", url, upload_remedy(url))
        if len(content) > MAX_SCRIPT_BYTES:
            problem = f"has {len(content)} bytes, more than {MAX_SCRIPT_BYTES}"
            raise InvalidInputError("script", url, problem, "Move data out of the script.")
        script = FetchedScript.of(content, version.signature)
        if script.sha256 != version.sha256:
            problem = f"its file {version.path} is damaged"
            raise InvalidInputError("script", url, problem, upload_remedy(url))
        return script
