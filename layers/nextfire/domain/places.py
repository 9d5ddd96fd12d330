"""Storage prefixes. Each pool has one prefix, the only one that its executors can access. The pool
comes first because ``*`` in IAM also matches slashes: ``*/default/*`` would match
``acme/other/default/x.py`` too.
"""

from __future__ import annotations

from nextfire.domain.ids import RunFolder

POOLS = "pools/"


def pool_place(pool: str) -> str:
    """Prefix of all scripts, outputs, secrets and parameters of *pool*."""
    return f"{POOLS}{pool}/"


def tenant_place(pool: str, tenant: str) -> str:
    """Prefix of the data of *tenant* in *pool*."""
    return f"{pool_place(pool)}{tenant}/"


def run_place(folder: RunFolder) -> str:
    """Prefix of the files of *folder* in the outputs bucket."""
    job = folder.key.job
    home = f"{job.tenant}/" if folder.pool is None else tenant_place(folder.pool, job.tenant)
    return f"{home}{job.job_id}/{folder.key.run_id}/"
