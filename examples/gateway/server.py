"""The HTTP in front of the service: reads a call, keeps it, lets a fault have it, carries it out, answers.

Control addresses are this room's own and are not kept as calls: `/healthz`, `/calls` and `/faults`. A
client that has gone away is no error. A body is a JSON object of at most 1 MiB.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from examples.gateway import mailings, office, payments, purchasing, service
from examples.gateway.faults import KINDS, Fault, Faults
from examples.gateway.service import Answer, Refused, Request
from examples.gateway.store import Store, decoded

LARGEST_BODY = 1024 * 1024
SERVED = (payments, mailings, purchasing, office)  # importing a room puts its addresses into the table


class Server(ThreadingHTTPServer):
    """The listening socket on loopback, with what its threads share."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, store: Store, *, quote_seconds: float, verbose: bool) -> None:
        self.store, self.faults = store, Faults()
        self.quote_seconds, self.verbose = quote_seconds, verbose
        super().__init__(("127.0.0.1", port), Handler)


class Handler(BaseHTTPRequestHandler):
    """One connection. `_control` answers the service's own addresses, `_outside` everything else."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "gateway"
    # Answers are small and waited for: without these two each costs 40 ms of delayed acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_DELETE = do_PUT = do_PATCH = do_GET

    def _handle(self) -> None:
        try:
            text = self._read()
        except Refused as refused:
            self.close_connection = True
            return self._send(refused.answer)
        path = urlsplit(self.path).path  # as it came: a slash that was escaped is no border between segments
        if path in CONTROLS:
            self._send(self._control(path, text))
        else:
            self._outside(path, text)

    def _read(self) -> str | None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or "Transfer-Encoding" in self.headers:
            raise Refused(411, "length_required", "Content-Length must say how long the body is.")
        if int(length) > LARGEST_BODY:
            raise Refused(413, "too_large", f"A body has at most {LARGEST_BODY} bytes.")
        return self.rfile.read(int(length)).decode(errors="replace") if int(length) else None

    def _control(self, path: str, text: str | None) -> Answer:
        action = CONTROLS[path].get(self.command)
        try:
            if action is None:
                raise Refused(405, "method_not_allowed", f"{path} does not answer {self.command}.")
            return action(self.server, self._query(), _parsed(text))
        except Refused as refused:
            return refused.answer

    def _outside(self, path: str, text: str | None) -> None:
        """Keep the call, then carry it out; a fault may keep either from happening."""
        key = self.headers.get("Idempotency-Key")
        query = urlsplit(self.path).query
        call = self.server.store.received(method=self.command, path=path, query=query, key=key, body=text)
        fault, cleared = self.server.faults.take(self.command, path) or (None, threading.Event())
        kind = fault.kind if fault else None
        if fault and kind == "hang":
            cleared.wait(fault.seconds)
        answer = self._unavailable() if kind in ("503", "lose") else self._perform(path, text, key)
        if fault and kind == "late":
            cleared.wait(fault.seconds)
        dropped = kind in ("drop", "lose")
        status = None if dropped else answer.status
        self.server.store.answered(call, status=status, replayed=answer.replayed, fault=kind)
        if dropped:
            self.close_connection = True
        else:
            self._send(answer)

    def _perform(self, path: str, text: str | None, key: str | None) -> Answer:
        try:
            body = _parsed(text)
        except Refused as refused:
            return refused.answer
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        request = Request(self.command, path, body, self._query(), key, self.server.quote_seconds, token)
        return service.perform(self.server.store, request)

    def _unavailable(self) -> Answer:
        return Answer(503, {"code": "unavailable", "detail": "The service is unavailable."})

    def _query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    def _send(self, answer: Answer) -> None:
        page = answer.body.get("page")
        content = (page or json.dumps(answer.body, ensure_ascii=False)).encode()
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", "text/html; charset=utf-8" if page else "application/json")
            self.send_header("Content-Length", str(len(content)))
            if answer.replayed:
                self.send_header("Idempotent-Replay", "true")
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()
        except ConnectionError:  # who asked has gone; what was done stays done
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        if self.server.verbose and self.command != "GET":
            print(format % args, flush=True)


def _parsed(text: str | None) -> dict[str, Any]:
    """The body as an object; an empty one is an empty object."""
    try:
        body = decoded(text or "{}")
    except ValueError as error:
        raise Refused(400, "malformed", f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(422, "invalid", "The body must be a JSON object.")
    return body


def _health(server: Server, query: dict[str, str], body: dict[str, Any]) -> Answer:
    return Answer(200, {"status": "ok"})


def _calls(server: Server, query: dict[str, str], body: dict[str, Any]) -> Answer:
    unknown = set(query) - {"path", "method", "key", "after"}
    if unknown or not query.get("after", "0").isdigit():
        raise Refused(422, "invalid", "Calls are filtered by path, method, key, and after (a number).")
    return Answer(200, server.store.calls(query))


def _faults(server: Server, query: dict[str, str], body: dict[str, Any]) -> Answer:
    return Answer(200, {"faults": server.faults.shown()})


def _add_fault(server: Server, query: dict[str, str], body: dict[str, Any]) -> Answer:
    try:
        fault = Fault(**body)
        fits = fault.kind in KINDS and fault.path.startswith("/") and fault.times >= 1 and fault.seconds >= 0
    except (TypeError, AttributeError):
        fits = False
    if not fits:
        detail = f"A fault has a kind ({', '.join(KINDS)}), a path, and if wanted method, times, seconds."
        raise Refused(422, "invalid", detail)
    server.faults.add(fault)
    return Answer(201, {"faults": server.faults.shown()})


def _clear_faults(server: Server, query: dict[str, str], body: dict[str, Any]) -> Answer:
    server.faults.clear(query.get("path"))
    return Answer(200, {"faults": server.faults.shown()})


CONTROLS = {
    "/healthz": {"GET": _health},
    "/calls": {"GET": _calls},
    "/faults": {"GET": _faults, "POST": _add_fault, "DELETE": _clear_faults},
}
