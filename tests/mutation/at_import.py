"""Tests of code that runs while modules are imported. Coverage does not show which tests depend on
it, so this table adds to those that import the module. They need not be among the traced tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_DESCRIPTION = "tests/integration/test_api_description.py"
_PROXY = tuple(
    f"tests/security/egress_proxy/test_{name}.py"
    for name in ("proxied_hosts", "proxy_limits", "proxy_relay")
)
TESTS = {
    "functions/embedded/parts.py": ("tests/embedded/test_deaths.py",),
    "functions/api/": (_DESCRIPTION, "tests/integration/test_start_up.py"),
    "functions/api/routes/scripts.py": ("tests/integration/test_api_scripts.py",),
    "layers/nextfire/adapters/files/secrets.py": ("tests/unit/cli/test_cli_secrets.py",),
    "layers/nextfire/adapters/packages/index_secret.py": (
        "tests/security/test_package_settings.py",
    ),
    "layers/nextfire/adapters/scripts/bounded_server.py": _PROXY,
    "layers/nextfire/adapters/scripts/egress_proxy.py": _PROXY,
    "layers/nextfire/adapters/scripts/forked_script.py": ("tests/unit/test_forked_script.py",),
    "layers/nextfire/adapters/scripts/keeper.py": ("tests/unit/script_runner/test_other_hosts.py",),
    "layers/nextfire/client/": ("tests/integration/test_client.py",),
    "layers/nextfire/domain/edges.py": (_DESCRIPTION, "tests/integration/test_api_refusals.py"),
    "layers/nextfire/domain/iam_rules.py": ("tests/security/test_identity.py",),
    "layers/nextfire/domain/packages.py": ("tests/security/packages/test_index_credentials.py",),
    "layers/nextfire/domain/restriction.py": ("tests/security/test_restricted_keys.py",),
    "layers/nextfire/responses/": (_DESCRIPTION, "tests/integration/test_api_runs.py"),
    "layers/nextfire/settings.py": ("tests/unit/test_worker_environment.py",),
    "layers/nextfire/targets/http/request.py": ("tests/unit/http_runner/test_http_requests.py",),
    "layers/nextfire/targets/http/addresses.py": ("tests/infra/test_calls_pool.py",),
}
"""Files of tests, by file of the product or folder."""


def covering(path: str, root: Path) -> Iterator[str]:
    """The files of the tests of what runs when *path* is imported, from *root*."""
    for beginning, files in TESTS.items():
        if path.startswith(beginning):
            yield from (file for file in files if (root / file).exists())
