"""HTTP to the gateway, and what each way of failing means.

Certainly not done: the connection was never made (`NotSent`), or the gateway refused with a code (`Refused`
and its children). Everything else, a time-out, a dropped connection, a 5xx, an answer that cannot be read,
leaves open whether the call was carried out and is raised as it came. A key used with another body is among
these: something was done under this key.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from urllib.parse import quote

import httpx
from django.conf import settings

from runs.exceptions import NotSent

CONNECT = 2.0
LOOK = 4.0  # seconds for reads and facts
ACT = 8.0  # seconds for effects
NEVER_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class Refused(Exception):
    """The gateway did not carry the call out: a code for programs, a sentence for people."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class NotFound(Refused):
    """There is no such ticket, charge, list or quote."""


class Unclear(Exception):
    """The gateway's answer does not say whether the call was carried out."""


class Away(Unclear):
    """The gateway answered 503: it says that it is away and has not carried the call out. Other services say
    503 also of what they did, so only a tool that knows its service takes it as certain."""


# After these a look, or a call whose key the gateway honours, may be made again.
TROUBLE = (NotSent, Unclear, httpx.TransportError)


def address(*segments: str | int) -> str:
    """The path of these segments; whatever is in one stays in it."""
    return "".join(f"/{quote(str(each), safe='@')}" for each in segments)


def look(path: str, **query: str) -> dict[str, Any]:
    """Read something. Raises NotFound; anything else means it could not be read."""
    return _answer(_send("GET", path, seconds=LOOK, params=query), NotFound)


def act(
    path: str,
    body: dict[str, Any],
    *,
    refused: type[Refused],
    key: str | None = None,
    token: str | None = None,
) -> dict[str, Any]:
    """Change something, under a key if the address honours one. Raises `refused` when it was not done."""
    headers = {"Idempotency-Key": key} if key else {}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    return _answer(_send("POST", path, seconds=ACT, json=body, headers=headers), refused)


def end_faults(of: str) -> None:
    """The failures asked for on this path are over."""
    _answer(_send("DELETE", "/faults", seconds=LOOK, params={"path": of}), NotFound)


@cache
def _client(address: str) -> httpx.Client:
    """One client a process. No connection is kept: one that went stale would leave calls in doubt."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(base_url=address, limits=limits, trust_env=False)


def _send(method: str, path: str, *, seconds: float, **parts: Any) -> httpx.Response:
    timeout = httpx.Timeout(seconds, connect=CONNECT)
    try:
        return _client(settings.GATEWAY_URL).request(method, path, timeout=timeout, **parts)
    except NEVER_CONNECTED as error:
        raise NotSent(f"{type(error).__name__}: {error}") from error


def _answer(response: httpx.Response, refused: type[Refused]) -> dict[str, Any]:
    body = _body(response)
    if response.is_success:
        return body
    code, detail = body.get("code"), body.get("detail")
    certain = response.is_client_error and code != "idempotency_conflict"
    if certain and isinstance(code, str) and isinstance(detail, str):
        raise refused(code, detail)
    kind = Away if (response.status_code, code) == (503, "unavailable") else Unclear
    raise kind(f"the gateway answered {response.status_code}: {detail or response.text[:200]}")


def _body(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        body = None
    if not isinstance(body, dict):
        raise Unclear(f"the gateway answered {response.status_code} with something that is no JSON object")
    return body
