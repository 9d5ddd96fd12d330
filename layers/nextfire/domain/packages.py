"""Rules for the packages that a pool installs for its scripts, and for the package index.

These checks are pure: they reject packages before any installer runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from nextfire.dataclass import dataclass
from nextfire.domain.document import StrictModel

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PUBLIC_INDEX = "https://pypi.org/simple"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_LINE = re.compile(r"[\x20-\x7e]{1,4000}")
_LOCK_LINE = re.compile(r"[\x20-\x7e]+")
"""As long as it takes: some packages have 140 files, so that many hashes."""
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


class PackagePolicy(StrictModel):
    """The packages that may be installed for the scripts of a pool."""

    model_config = ConfigDict(hide_input_in_errors=True)

    require_hashes: bool = False
    """Whether a script with dependencies must contain a lock: each package with SHA-256 digests."""
    allow: (
        tuple[Annotated[str, StringConstraints(pattern=rf"^{_NAME}$", max_length=128)], ...] | None
    ) = Field(default=None, max_length=500)
    """Names of the allowed packages, transitive dependencies included; None: all are allowed."""
    builds: bool = False
    """Whether packages without a wheel are built. A build runs code of the package."""
    urls: bool = False
    """Whether a dependency may be an https:// URL instead of a package of the index."""

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.require_hashes and self.builds:
            raise ValueError(
                "packagePolicy: requireHashes and builds exclude each other, because no lock holds "
                "the hashes of the tools that build a package; set builds to false"
            )
        if self.require_hashes and self.urls:
            raise ValueError(
                "packagePolicy: requireHashes and urls exclude each other; set urls to false"
            )
        return self

    @property
    def allowed(self) -> frozenset[str] | None:
        """The names of `allow`, normalized."""
        return None if self.allow is None else frozenset(map(normalized, self.allow))


class PackageRefusedError(ValueError):
    """The pool does not install a package. The message names it and contains the remedy."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Packages with exact versions and digests. `lines`: in the format of a requirements file."""

    lines: tuple[str, ...]
    names: frozenset[str]


def normalized(name: str) -> str:
    """The normalized name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check_index(url: str) -> str:
    """Check the URL of a package index and return it.

    Raises:
        ValueError: *url* is not https://, or contains credentials.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("packageIndex is not a URL; write it like https://HOST/simple") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(
            "packageIndex must not hold credentials: no user, password, query or fragment. Store "
            "USER:PASSWORD as a secret in Secrets Manager or as an SSM parameter, and set "
            "packageIndexSecret to its ARN"
        )
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)):
        raise ValueError(
            "packageIndex must be an https:// URL, for example https://HOST/simple; http:// is "
            "allowed for the loopback address only"
        )
    return url


def check_requirements(requirements: Iterable[str], policy: PackagePolicy) -> list[str]:
    """Check the dependencies of a script; return them in the format of the installer.

    Raises:
        PackageRefusedError: A dependency is not a requirement (PEP 508), or is not allowed.
    """
    checked = []
    for text in requirements:
        requirement = _parse(text)
        _check_allowed(requirement.name, policy)
        if requirement.url is not None and not (
            policy.urls and requirement.url.startswith("https://")
        ):
            raise PackageRefusedError(
                f"the dependency {requirement.name!r} names a URL or a path. Name a version that "
                "is in the package index, for example 'httpx>=0.28'; https:// URLs need "
                '"urls": true in the pool\'s packagePolicy'
            )
        checked.append(str(requirement))
    return checked


def read_lock(lines: Collection[str], dependencies: Collection[str], policy: PackagePolicy) -> Lock:
    """Parse the lock in *lines*; check it against *policy* and the *dependencies* of the script.

    Raises:
        PackageRefusedError: A line is malformed or not allowed, or a dependency is not locked.
    """
    locked = {}
    for line in lines:
        words = line.split()
        first = next((n for n, word in enumerate(words) if word.startswith("--")), len(words))
        hashes = words[first:]
        exact = {"==", "==="} if _LOCK_LINE.fullmatch(line) else set()
        requirement = _parse(" ".join(words[:first]))
        operators = [each.operator for each in requirement.specifier]
        if (
            requirement.url is not None
            or len(operators) != 1
            or not exact.issuperset(operators)
            or "*" in str(requirement.specifier)
            or not hashes
            or not all(_HASH.fullmatch(each) for each in hashes)
        ):
            raise PackageRefusedError(
                f"its lock has the line {_shown(line)}. Each line is NAME==VERSION and one or more "
                "--hash=sha256:DIGEST; write the lock with: nextfire scripts lock FILE"
            )
        _check_allowed(requirement.name, policy)
        locked[" ".join([str(requirement), *hashes])] = normalized(requirement.name)
    names = frozenset(locked.values())
    for text in dependencies:
        if normalized(_parse(text).name) not in names:
            raise PackageRefusedError(
                f"its lock does not hold the dependency {_shown(text)}. Write the lock again with: "
                "nextfire scripts lock FILE"
            )
    return Lock(tuple(locked), names)


def not_allowed(names: Collection[str]) -> str:
    """The error message for the packages *names*, which the pool does not allow."""
    one = "package" if len(names) == 1 else "packages"
    return (
        f"the pool does not allow the {one} {', '.join(sorted(names))}. Add to "
        '"allow" in its packagePolicy what is needed, or do without'
    )


def _check_allowed(name: str, policy: PackagePolicy) -> None:
    if policy.allowed is not None and normalized(name) not in policy.allowed:
        raise PackageRefusedError(not_allowed([normalized(name)]))


def _parse(text: str) -> Requirement:
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415

    try:
        if _LINE.fullmatch(text):  # a single line, so no further line is parsed as an option
            return Requirement(text)
    except (InvalidRequirement, RecursionError):
        pass
    raise PackageRefusedError(
        f"{_shown(text)} is not a requirement. Write it like 'httpx>=0.28'"
    ) from None


def _shown(text: str) -> str:
    """*text*, quoted and shortened, with possible URL credentials removed."""
    short = re.sub(r"//[^/\s@]*@", "//***@", text)
    return repr(short if len(short) <= 100 else short[:99] + "…")  # noqa: PLR2004
