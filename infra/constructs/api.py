"""The HTTP API. Every route but health takes SigV4-signed requests only; nothing turns that off."""

import json

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.function import Function
from infra.settings import Settings

HEALTH_PATH = "/v1/health"
_ACCESS_LOG_FORMAT = json.dumps(
    {
        "requestId": "$context.requestId",
        "requestTime": "$context.requestTime",
        "caller": "$context.identity.caller",
        "sourceIp": "$context.identity.sourceIp",
        "method": "$context.httpMethod",
        "path": "$context.path",
        "status": "$context.status",
        "responseLatencyMs": "$context.responseLatency",
        "error": "$context.error.message",
    }
)


class Api(Construct):
    """Routes all requests to *function*, with access logs and a throttle."""

    def __init__(
        self, scope: Construct, construct_id: str, *, function: Function, settings: Settings
    ) -> None:
        super().__init__(scope, construct_id)
        integration = integrations.HttpLambdaIntegration("Integration", function.function)
        self.http_api = apigateway.HttpApi(
            self,
            "Http",
            create_default_stage=False,
            default_integration=integration,
            default_authorizer=authorizers.HttpIamAuthorizer(),
        )
        self.http_api.add_routes(
            path=HEALTH_PATH,
            methods=[apigateway.HttpMethod.GET],
            integration=integration,
            authorizer=apigateway.HttpNoneAuthorizer(),
        )
        access_logs = logs.LogGroup(
            self, "AccessLogs", retention=settings.retention, removal_policy=RemovalPolicy.DESTROY
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
                detailed_metrics_enabled=True,
            ),
            access_log_settings=apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=access_logs.log_group_arn, format=_ACCESS_LOG_FORMAT
            ),
        )
        stack = Stack.of(self)
        self.url = f"https://{self.http_api.api_id}.execute-api.{stack.region}.{stack.url_suffix}"
