"""Makes moto and the SDK faster: caches what they compute for each call, and leaves out signatures,
which moto does not check. The behaviour is unchanged.
"""

from __future__ import annotations

import copy
import json
import pickle
import time
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from typing import Any, TypeAlias

import pytest
from botocore import auth, useragent  # noqa: TID251 — its clients make very many calls
from moto.core import responses, utils
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.serialize import BaseJSONSerializer
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.dynamodb.parsing import ast_nodes, expressions, validators
from moto.sqs import models as queues

_parser: Any = expressions.UpdateExpressionParser  # type: ignore[attr-defined] # untyped there
_make = _parser.make
_serialize = BaseJSONSerializer._serialize_type_structure  # noqa: SLF001 — moto's
_methods = cache(utils.method_names_from_class)
_underscored = cache(utils.camelcase_to_underscores)
_write_user_agent = useragent.UserAgentString.to_string
_signer: Any = auth.SigV4Auth
_add_auth = _signer.add_auth
_dumped: dict[int, bytes] = {}
"""Pickled parse trees by the id of the tree, which `_make_once` keeps."""

Answer: TypeAlias = tuple[int, dict[str, Any], str | bytes]
"""Status, headers and body."""

_QUERY = "DynamoDB_20120810.Query"
_OURS = "Credential=FOOBARKEY/"  # of the account that moto gives to tests
_EMPTY: Answer = (
    HTTPStatus.OK,
    {"content-type": "application/x-amz-json-1.0"},
    b'{"Count": 0, "Items": [], "ScannedCount": 0}',
)
_accepted: set[str] = set()
"""The forms of queries that moto has accepted: everything but the values."""


def quicken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the caches until *monkeypatch* is undone. They outlive it."""
    monkeypatch.setattr(responses, "method_names_from_class", _methods)
    monkeypatch.setattr(responses, "camelcase_to_underscores", _underscored)
    monkeypatch.setattr(queues, "camelcase_to_underscores", _underscored)
    monkeypatch.setattr(queues, "unix_time", _unix_time)
    monkeypatch.setattr(queues, "unix_time_millis", lambda: _unix_time() * 1000)
    monkeypatch.setattr(useragent.UserAgentString, "to_string", _user_agent)
    monkeypatch.setattr(_signer, "add_auth", _add_credential)
    monkeypatch.setattr(ast_nodes, "isinstance", _is_instance, raising=False)
    monkeypatch.setattr(BaseJSONSerializer, "_serialize_type_structure", _serialize_structure)
    monkeypatch.setattr(_parser, "make", _make_once)
    monkeypatch.setattr(validators, "deepcopy", _copied)
    for each in (validators.ActionCountValidator, validators.OverlappingPathsValidator):
        # At the root only, where all clauses are.
        monkeypatch.setattr(each, "traverse", each.process)


class _Query:
    """A query of a partition."""

    def __init__(self, body: dict[str, Any], region: str) -> None:
        _, equals, value = body["KeyConditionExpression"].split()[:3]
        assert equals == "="
        values = body.pop("ExpressionAttributeValues")
        self._partition = DynamoType(values[value])
        self._tables = dynamodb_backends[DEFAULT_ACCOUNT_ID][region].tables
        self._table = body["TableName"]
        start = sorted(body.pop("ExclusiveStartKey", ()))
        self.form = json.dumps([body, sorted(values), start], sort_keys=True)

    @property
    def is_empty(self) -> bool:
        table = self._tables.get(self._table)
        return table is not None and not table.items.get(self._partition)


def answered(process: Callable[[Any], Answer | None], request: Any, region: str) -> Answer | None:
    """The answer of *process*, moto, to *request*. A query of an empty partition is answered here
    if moto has answered one of this form: most queries are of that kind, and each takes long.
    """
    headers = request.headers
    if _QUERY not in str(headers.get("X-Amz-Target")) or _OURS not in str(headers):
        return process(request)
    body = json.loads(request.body)
    if body.keys() & {"IndexName", "ReturnConsumedCapacity"}:
        return process(request)
    query = _Query(body, region)
    if query.form in _accepted and query.is_empty:
        return _EMPTY
    answer = process(request)
    if answer is not None and answer[0] == HTTPStatus.OK:
        _accepted.add(query.form)
    return answer


def _user_agent(self: Any) -> str:
    """The same for each call of a client."""
    known: dict[str, Any] = self.__dict__
    if "text" not in known:
        known["text"] = _write_user_agent(self)
    text: str = known["text"]
    return text


def _unix_time() -> float:
    return round(time.time(), 6)  # moto counts microseconds


def _add_credential(self: Any, request: Any) -> None:
    """Name the access key, by which moto finds the account, without a signature."""
    if type(self) is not _signer or self.credentials is None:
        _add_auth(self, request)  # S3's
        return
    request.context["timestamp"] = time.strftime(auth.SIGV4_TIMESTAMP, time.gmtime())
    self._modify_request_before_signing(request)
    credential = f"AWS4-HMAC-SHA256 Credential={self.scope(request)}"
    request.headers["Authorization"] = f"{credential}, SignedHeaders=host, Signature=0"


def _serialize_structure(
    self: BaseJSONSerializer, serialized: Any, value: Any, shape: Any, key: str
) -> None:
    # Stored and sent in the same form, except bytes.
    if shape.name == "AttributeValue" and not _holds_bytes(value):
        serialized[key] = value
    else:
        _serialize(self, serialized, value, shape, key)


def _holds_bytes(value: dict[str, Any]) -> bool:
    [(kind, held)] = value.items()
    if kind in {"L", "M"}:
        return any(map(_holds_bytes, held if kind == "L" else held.values()))
    return kind in {"B", "BS"}


@cache
def _make_once(expression: str) -> Any:
    tree = _make(expression)
    _dumped[id(tree)] = pickle.dumps(tree)
    return tree


def _copied(thing: Any) -> Any:
    dumped = _dumped.get(id(thing))
    return copy.deepcopy(thing) if dumped is None else pickle.loads(dumped)  # noqa: S301 — our own


def _is_instance(thing: Any, kind: Any) -> bool:
    """`isinstance` without the checks for abstract classes."""
    made_of: Any = type(thing)
    return bool(_is_subclass(made_of, kind))


@cache
def _is_subclass(kind: Any, of: Any) -> bool:
    return issubclass(kind, of)
