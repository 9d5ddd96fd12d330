"""The API key of a local stack."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from nextfire.client import folder
from nextfire.domain.keys import Minted, Scope
from nextfire.domain.ports.access import KeyStore
from nextfire.usecases.manage_keys import CheckKey, ManageKeys, new_key_id

_KEY_LIFE, _KEY_LEFT = timedelta(days=365), timedelta(days=30)
"""Lifetime of the stack's API key, and what remains of it when a new key is created."""


def provide_key(keys: KeyStore, file: Path, *, tenant: str) -> None:
    """Make sure that *file* has an API key of *tenant* that stays valid for a while."""
    soon = datetime.now(UTC) + _KEY_LEFT
    if file.exists():
        held = file.read_text(encoding="ascii", errors="replace").strip()
        file.chmod(0o600)
        if CheckKey(keys).check(f"Bearer {held}", soon).key is not None:
            return
    made = ManageKeys(keys).create(
        tenant,
        key_id=new_key_id(),
        name="local stack",
        scopes=[Scope.ADMIN],
        now=datetime.now(UTC),
        life=_KEY_LIFE,
    )
    assert isinstance(made, Minted)  # noqa: S101 — the id is new
    folder.write_private(file, made.text + "\n")
