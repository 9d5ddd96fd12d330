"""Checks whether the pool of a job can run its target, before the job is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import JsonValue

from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.target import TargetKind
from nextfire.settings import DeployedPool
from nextfire.targets.aws.document import AwsCall
from nextfire.targets.http.addresses import AddressRules, check_url
from nextfire.targets.http.document import HttpCall, OAuth2Auth, OidcAuth, SigV4Auth
from nextfire.targets.template import TemplateError, example_context, render


def target_check(pools: Mapping[str, DeployedPool]) -> Callable[[JobDefinition], None]:
    """Return the check of definitions for *pools*; it raises InvalidInputError."""

    def check(definition: JobDefinition) -> None:
        target = definition.target
        pool = pools[target.pool]
        is_script = target.kind is TargetKind.SCRIPT
        if is_script != (pool.targets == "scripts"):
            fitting = _fitting(pools, target.kind)
            raise _other_targets("target.pool", target.pool, pool, target.kind.noun, fitting)
        if not is_script and definition.retry_policy.retry_on.exit_codes is not None:
            raise InvalidInputError(
                "retryPolicy.retryOn.exitCodes",
                [*definition.retry_policy.retry_on.exit_codes],
                f"{target.kind.noun} have no exit codes",
                "Remove it; retryPolicy.retryOn.states selects the outcomes that are retried.",
            )
        if target.http is not None:
            _check_callback(target.http, pool)
        if target.aws is not None:
            _check_aws(target.aws, pool)
        if (found := _unrendered(definition, definition.payload)) is not None:
            field, error = found
            raise InvalidInputError(
                field,
                definition.target.template[1],
                str(error),
                "For example {{payload.id}} or {{run.executionId}}.",
            ) from error

    return check


def check_targets(pools: Mapping[str, DeployedPool], name: str, targets: str) -> None:
    """Check that the pool *name* runs *targets*: scripts, or calls.

    Raises:
        InvalidInputError: It does not.
    """
    if pools[name].targets != targets:
        fitting = ", ".join(sorted(_pools_of(pools, targets))) or "none"
        raise _other_targets("pool", name, pools[name], targets, fitting)


def check_signed(pools: Mapping[str, DeployedPool], name: str, signature: str | None) -> None:
    """Check that a script for the pool *name* has a *signature*, if the pool runs no others. Its
    executors verify it.

    Raises:
        InvalidInputError: It has none.
    """
    if signature is None and pools[name].signed:
        raise InvalidInputError(
            "signature",
            None,
            f"the pool {name} runs signed scripts only",
            "Sign the script: nextfire scripts push FILE --sign KEYFILE.",
        )


def _other_targets(
    field: str, name: str, pool: DeployedPool, targets: str, fitting: str
) -> InvalidInputError:
    problem = f"the pool runs {pool.targets}, not {targets}"
    return InvalidInputError(field, name, problem, f"Pools for {targets}: {fitting}.")


def check_run_payload(definition: JobDefinition, payload: JsonValue) -> None:
    """Check that *payload*, of one run, has what the template of the job names.

    Raises:
        InvalidInputError: It lacks something.
    """
    if (found := _unrendered(definition, payload)) is not None:
        field, error = found
        raise InvalidInputError(
            "payload",
            "the payload of the run",
            f"{field} cannot be rendered with it: {error}",
            "Add what it names.",
        ) from error


def _unrendered(definition: JobDefinition, payload: JsonValue) -> tuple[str, TemplateError] | None:
    """The template of the job, as a path, if it cannot be rendered for *payload*, and why."""
    field, template = definition.target.template
    if template is None:
        return None
    try:
        render(template, example_context(payload, definition.after))
    except TemplateError as error:
        return field, error
    return None


def _pools_of(pools: Mapping[str, DeployedPool], targets: str) -> dict[str, DeployedPool]:
    return {name: pool for name, pool in pools.items() if pool.targets == targets}


def _fitting(pools: Mapping[str, DeployedPool], kind: TargetKind) -> str:
    fitting = _pools_of(pools, "scripts" if kind is TargetKind.SCRIPT else "calls")
    if kind is not TargetKind.AWS:
        return ", ".join(sorted(fitting)) or "none"
    return ", ".join(sorted(name for name in fitting if fitting[name].has_job_role)) or (
        "none, because no pool for calls has a jobRole"
    )


def _check_callback(call: HttpCall, pool: DeployedPool) -> None:
    rules = AddressRules.of(pool.call_networks, pool.call_ports, http=pool.call_http)
    check_url(call.url, rules)
    if isinstance(call.auth, OAuth2Auth):
        check_url(call.auth.token_url, rules, "target.http.auth.tokenUrl")
    if isinstance(call.auth, SigV4Auth | OidcAuth) and not pool.has_job_role:
        raise _without_role("target.http.auth.type", call.auth.type)
    if isinstance(call.auth, SigV4Auth):
        # Its module has the transport, which the API needs for nothing else.
        from nextfire.targets.http.authentication import check_signature  # noqa: PLC0415

        check_signature(call.auth, pool.aws_actions)


def _check_aws(call: AwsCall, pool: DeployedPool) -> None:
    if not pool.has_job_role:
        raise _without_role("target.aws", call.service)
    # Imports the SDK's models, which the API does for the first AWS call only.
    from nextfire.targets.aws.model import check_call  # noqa: PLC0415

    check_call(call, pool.aws_actions)


def _without_role(field: str, value: str) -> InvalidInputError:
    return InvalidInputError(
        field,
        value,
        "the pool has no job role",
        "Set jobRole of the pool, or use another pool. The embedded stack has none with a role.",
    )
