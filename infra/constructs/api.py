"""The HTTP API. The gateway authenticates callers of all routes except health; no setting disables
that.
"""

import json
from collections.abc import Mapping
from datetime import timedelta

from aws_cdk import Duration, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.auth_settings import Auth
from infra.constructs.function import Function
from infra.settings import Settings

HEALTH_PATH = "/v1/health"
AUTHORIZER_CACHE_TTL = timedelta(seconds=30)
"""How long the gateway caches the authorizer's result: a revoked key is accepted for up to that
long."""
_BEARER = "$request.header.Authorization"
_CALLER = {
    Auth.KEYS: {"tenant": "$context.authorizer.tenant", "keyId": "$context.authorizer.keyId"},
    Auth.IAM: {"caller": "$context.identity.caller"},
    Auth.JWT: {"subject": "$context.authorizer.claims.sub"},
}
_ACCESS_LOG: Mapping[str, str] = {
    "requestId": "$context.requestId",
    "requestTime": "$context.requestTime",
    "sourceIp": "$context.identity.sourceIp",
    "userAgent": "$context.identity.userAgent",
    "routeKey": "$context.routeKey",
    "method": "$context.httpMethod",
    "path": "$context.path",
    "status": "$context.status",
    "responseLatencyMs": "$context.responseLatency",
    "integrationLatencyMs": "$context.integrationLatency",
    "error": "$context.error.message",
    "authorizerError": "$context.authorizer.error",
}


def _authorizer(settings: Settings, keys: Function | None) -> apigateway.IHttpRouteAuthorizer:
    """The authorizer of the routes. *keys*: the function that authorizes API keys, if any."""
    if keys is not None:
        return authorizers.HttpLambdaAuthorizer(
            "Keys",
            keys.function,
            identity_source=[_BEARER],
            response_types=[authorizers.HttpLambdaResponseType.SIMPLE],
            results_cache_ttl=Duration.seconds(int(AUTHORIZER_CACHE_TTL.total_seconds())),
        )
    if settings.jwt is not None:
        return authorizers.HttpJwtAuthorizer(
            "Jwt",
            settings.jwt.issuer,
            identity_source=[_BEARER],
            jwt_audience=list(settings.jwt.audience),
        )
    return authorizers.HttpIamAuthorizer()


class Api(Construct):
    """Routes all requests to *function*, with access logs and throttling.

    *authorizer*: the function that authorizes API keys; given if and only if `auth` is keys.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: Function,
        authorizer: Function | None,
        settings: Settings,
        key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, construct_id)
        integration = integrations.HttpLambdaIntegration("Integration", function.function)
        self.http_api = apigateway.HttpApi(
            self,
            "Http",
            create_default_stage=False,
            default_integration=integration,
            default_authorizer=_authorizer(settings, authorizer),
        )
        self.http_api.add_routes(
            path=HEALTH_PATH,
            methods=[apigateway.HttpMethod.GET],
            integration=integration,
            authorizer=apigateway.HttpNoneAuthorizer(),
        )
        access_logs = logs.LogGroup(
            self,
            "AccessLogs",
            retention=settings.audit_days,
            removal_policy=settings.audit_removal,
            encryption_key=key,
        )
        apigateway.CfnStage(
            self,
            "Stage",
            api_id=self.http_api.api_id,
            stage_name="$default",
            auto_deploy=True,
            default_route_settings=apigateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=settings.throttle_rate,
                throttling_burst_limit=settings.throttle_burst,
            ),
            access_log_settings=apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=access_logs.log_group_arn,
                format=json.dumps({**_ACCESS_LOG, **_CALLER[settings.auth]}),
            ),
        )
        stack = Stack.of(self)
        self.url = f"https://{self.http_api.api_id}.execute-api.{stack.region}.{stack.url_suffix}"
