"""Where the data of each pool are: below one prefix per pool, the only one that its executors may
use. The pool comes first, since IAM's ``*`` also matches slashes: ``*/default/*`` would match
``acme/other/default/x.py`` too.
"""

from __future__ import annotations

from nextfire.domain.ids import RunFolder

POOLS = "pools/"


def pool_place(pool: str) -> str:
    """The prefix of all scripts, outputs, secrets and parameters of *pool*."""
    return f"{POOLS}{pool}/"


def tenant_place(pool: str, tenant: str) -> str:
    """The prefix of *tenant*'s part of *pool*."""
    return f"{pool_place(pool)}{tenant}/"


def run_place(folder: RunFolder) -> str:
    """The prefix of the files of *folder* in the outputs bucket."""
    job = folder.key.job
    home = f"{job.tenant}/" if folder.pool is None else tenant_place(folder.pool, job.tenant)
    return f"{home}{job.job_id}/{folder.key.run_id}/"
