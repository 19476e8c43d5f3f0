"""The demo's outside system over HTTP, in a process of its own: what it keeps, promises and spoils."""

import http.client
import json
import threading
import urllib.error

import pytest

REFUNDS = "/charges/ch_4401/refunds"


def in_background(work):
    """Runs `work` in a thread; `join` the thread, then read the list it fills."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    return thread, answers


def until(condition):
    """Polls: what is waited for happens in another process."""
    while not condition():
        pass


# -- What it holds ------------------------------------------------------------


def test_ticket_is_read_with_its_customer(gateway):
    ticket = gateway.get("/tickets/5512")
    assert (ticket["charge"], ticket["asks_for"]) == ("ch_4401", "240.00")
    assert ticket["customer"]["name"] == "Marta Lindqvist"


def test_mailing_list_has_1200_different_addresses(gateway):
    members = gateway.get("/lists/customers/members")["members"]
    assert len({each["email"] for each in members}) == 1200
    assert gateway.get("/lists/customers")["size"] == 1200


def test_reply_is_kept_with_the_ticket(gateway):
    gateway.post("/tickets/5512/replies", {"text": "Done."})
    ticket = gateway.get("/tickets/5512")
    assert ticket["status"] == "answered"
    assert [each["text"] for each in ticket["replies"]] == ["Done."]


def test_unknown_address_is_refused_with_a_code(gateway):
    assert gateway.request("GET", "/nothing")[0] == 404
    assert gateway.request("DELETE", "/tickets/5512")[0] == 405


# -- Refunds ------------------------------------------------------------------


def test_refund_in_parts_until_nothing_is_left(gateway):
    gateway.post(REFUNDS, {"amount": "100.00"})
    assert gateway.get("/charges/ch_4401")["refunded"] == "100.00"
    status, answer, _ = gateway.request("POST", REFUNDS, {"amount": "140.01"})
    assert (status, answer["code"]) == (409, "amount_too_large")
    assert gateway.post(REFUNDS, {"amount": "140.00"})["amount"] == "140.00"
    assert gateway.get("/charges/ch_4401")["status"] == "refunded"


def test_disputed_charge_is_not_refunded(gateway):
    status, answer, _ = gateway.request("POST", "/charges/ch_4404/refunds", {"amount": "1.00"})
    assert (status, answer["code"]) == (409, "not_refundable")


@pytest.mark.parametrize(
    "amount", [240, 240.0, "240", "240.001", "-1.00", "0.00", "1e2", "", None, "NaN", "२.००"]
)
def test_amount_that_is_no_money_is_refused(gateway, amount):
    status, answer, _ = gateway.request("POST", REFUNDS, {"amount": amount})
    assert (status, answer["code"]) == (422, "invalid")
    assert gateway.get("/refunds?charge=ch_4401") == {"refunds": []}


def test_refund_is_found_by_its_key(gateway):
    made = gateway.post(REFUNDS, {"amount": "5.00"}, key="k1")
    assert gateway.get("/refunds?key=k1") == {"refunds": [made]}
    assert gateway.get("/refunds?key=k2") == {"refunds": []}


def test_escaped_slash_reaches_no_other_address(gateway):
    status, _, _ = gateway.request("POST", "/charges/ch_4401%2Fdispute%3F/refunds", {"amount": "5.00"})
    assert status == 404
    assert gateway.get("/charges/ch_4401")["status"] == "paid"


# -- Idempotency keys -----------------------------------------------------------


def test_same_key_and_body_gives_the_first_answer_again(gateway):
    first = gateway.request("POST", REFUNDS, {"amount": "5.00"}, key="k1")
    again = gateway.request("POST", REFUNDS, {"amount": "5.00"}, key="k1")
    assert again[:2] == first[:2]
    assert "idempotent-replay" not in first[2]
    assert again[2]["idempotent-replay"] == "true"
    assert gateway.get("/charges/ch_4401")["refunded"] == "5.00"
    assert [call["replayed"] for call in gateway.calls(REFUNDS)] == [False, True]


def test_same_key_with_another_body_or_path_is_a_conflict(gateway):
    gateway.post(REFUNDS, {"amount": "5.00"}, key="k1")
    for path, amount in [(REFUNDS, "6.00"), ("/charges/ch_4402/refunds", "5.00")]:
        status, answer, _ = gateway.request("POST", path, {"amount": amount}, key="k1")
        assert (status, answer["code"]) == (409, "idempotency_conflict")
    assert gateway.get("/charges/ch_4401")["refunded"] == "5.00"


def test_refusal_is_kept_under_its_key_as_well(gateway):
    first = gateway.request("POST", "/charges/ch_4404/refunds", {"amount": "1.00"}, key="k1")
    again = gateway.request("POST", "/charges/ch_4404/refunds", {"amount": "1.00"}, key="k1")
    assert again[:2] == first[:2]
    assert again[2]["idempotent-replay"] == "true"


def test_same_key_from_many_at_once_is_done_once(gateway):
    waiting = [in_background(lambda: gateway.post(REFUNDS, {"amount": "5.00"}, key="k1")) for _ in range(8)]
    for thread, _ in waiting:
        thread.join()
    assert len({answers[0]["id"] for _, answers in waiting}) == 1
    assert gateway.get("/charges/ch_4401")["refunded"] == "5.00"


def test_mailing_is_sent_again_in_spite_of_its_key(gateway):
    body = {"list": "press", "subject": "Hello", "text": "News", "recipients": ["a@example.com"]}
    ids = [gateway.post("/mailings", body, key="k1")["id"] for _ in range(2)]
    assert ids == ["ml_1", "ml_2"]


# -- Quotes and purchases -------------------------------------------------------


def quote(gateway):
    return gateway.post("/quotes", {"vendor": "kappa", "item": "standing-desk", "quantity": 10})


def test_purchase_uses_its_quote_up(gateway):
    made = quote(gateway)
    body = {"quote": made["id"], "amount": made["total"], "cost_centre": "4100-office"}
    bought = gateway.post("/purchases", body, key="k1")
    assert bought["amount"] == made["total"] == "3872.80"
    assert gateway.get("/purchases?key=k1") == {"purchases": [bought]}
    status, answer, _ = gateway.request("POST", "/purchases", body, key="k2")
    assert (status, answer["code"]) == (409, "quote_used")


def test_expired_quote_is_refused(gateway):
    made = quote(gateway)
    assert gateway.post(f"/quotes/{made['id']}/expire")["state"] == "expired"
    body = {"quote": made["id"], "amount": made["total"], "cost_centre": "4100-office"}
    status, answer, _ = gateway.request("POST", "/purchases", body)
    assert (status, answer["code"]) == (409, "quote_expired")


@pytest.mark.parametrize("changed", [{"amount": "1.00"}, {"vendor": "norde"}, {"quantity": 11}])
def test_purchase_that_differs_from_its_quote_is_refused(gateway, changed):
    made = quote(gateway)
    body = {"quote": made["id"], "amount": made["total"], "cost_centre": "4100-office"} | changed
    assert gateway.request("POST", "/purchases", body)[0] == 409
    assert gateway.get("/purchases") == {"purchases": []}


# -- Calls received ---------------------------------------------------------------


def test_every_call_is_kept_with_key_body_and_time(gateway):
    gateway.post(REFUNDS, {"amount": "5.00"}, key="k1")
    [call] = gateway.calls("/charges/*/refunds")
    assert call["body"] == {"amount": "5.00"}
    assert (call["method"], call["path"], call["status"]) == ("POST", REFUNDS, 201)
    assert (call["idempotency_key"], call["at"][-1]) == ("k1", "Z")


def test_calls_are_filtered_by_path_method_and_number(gateway):
    gateway.get("/tickets/5512")
    gateway.post("/tickets/5512/replies", {"text": "One"})
    gateway.post("/tickets/5513/replies", {"text": "Two"})
    assert [call["body"] for call in gateway.calls("/tickets/5512/replies")] == [{"text": "One"}]
    assert [call["path"] for call in gateway.calls(method="GET")] == ["/tickets/5512"]
    assert [call["body"]["text"] for call in gateway.calls(after=2)] == ["Two"]


@pytest.mark.parametrize(
    "body", [b"{", b"[1]", b'{"amount": NaN}', b'{"amount": "\\ud83c"}', b"\xff\xfe", b"[" * 100_000]
)
def test_malformed_body_is_refused_and_kept(gateway, body):
    assert gateway.request("POST", REFUNDS, body)[0] in (400, 422)
    assert len(gateway.calls(REFUNDS)) == 1
    assert gateway.get("/charges/ch_4401")["refunded"] == "0.00"


def test_oversized_body_is_refused_unread(gateway):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
    connection.putrequest("POST", REFUNDS)
    connection.putheader("Content-Length", str(2**20 + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


# -- Faults -------------------------------------------------------------------------


def refunded(gateway):
    return gateway.get("/charges/ch_4401")["refunded"]


def test_503_meets_the_next_calls_and_no_more(gateway):
    gateway.fail("503", REFUNDS, times=2)
    statuses = [gateway.request("POST", REFUNDS, {"amount": "5.00"}, key="k1")[0] for _ in range(3)]
    assert statuses == [503, 503, 201]
    assert [call["fault"] for call in gateway.calls(REFUNDS)] == ["503", "503", None]


@pytest.mark.parametrize(("kind", "done"), [("drop", "5.00"), ("lose", "0.00")])
def test_dropped_connection_with_the_call_done_or_not(gateway, kind, done):
    gateway.fail(kind, REFUNDS)
    with pytest.raises((http.client.RemoteDisconnected, urllib.error.URLError)):
        gateway.request("POST", REFUNDS, {"amount": "5.00"}, key="k1")
    assert refunded(gateway) == done
    assert [(call["fault"], call["status"]) for call in gateway.calls(REFUNDS)] == [(kind, None)]


@pytest.mark.parametrize(("kind", "done"), [("late", "5.00"), ("hang", "0.00")])
def test_waiting_call_goes_on_when_faults_are_cleared(gateway, kind, done):
    gateway.fail(kind, REFUNDS)
    thread, answers = in_background(lambda: gateway.post(REFUNDS, {"amount": "5.00"}))
    until(lambda: gateway.calls(REFUNDS))
    if kind == "late":
        until(lambda: refunded(gateway) != "0.00")
    assert refunded(gateway) == done
    assert answers == []
    gateway.clear_faults()
    thread.join()
    assert answers[0]["amount"] == refunded(gateway) == "5.00"


def test_fault_meets_only_its_method_and_path(gateway):
    gateway.fail("503", "/charges/*", method="GET")
    assert gateway.request("POST", REFUNDS, {"amount": "5.00"})[0] == 201
    assert gateway.request("GET", "/tickets/5512")[0] == 200
    assert gateway.request("GET", "/charges/ch_4401")[0] == 503


@pytest.mark.parametrize(
    "fault",
    [
        {},
        {"kind": "burn", "path": "/x"},
        {"kind": "503", "path": "x"},
        {"kind": "503", "path": "/x", "times": 0},
        {"kind": "503", "path": "/x", "often": 1},
    ],
)
def test_unknown_fault_is_refused(gateway, fault):
    assert gateway.request("POST", "/faults", fault)[0] == 422
    assert gateway.get("/faults") == {"faults": []}


# -- Process --------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_survives_a_restart(gateway, end):
    made = gateway.post(REFUNDS, {"amount": "5.00"}, key="k1")
    code = getattr(gateway, end)()
    assert code == {"stop": 0, "kill": -9}[end]
    gateway.restart()
    assert gateway.get("/healthz") == {"status": "ok"}
    assert len(gateway.calls(REFUNDS)) == 1
    assert gateway.post(REFUNDS, {"amount": "5.00"}, key="k1") == made
    assert refunded(gateway) == "5.00"


def test_sigterm_ends_it_while_a_call_hangs(gateway):
    gateway.fail("hang", REFUNDS)
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
    connection.request("POST", REFUNDS, json.dumps({"amount": "5.00"}))
    until(lambda: gateway.calls(REFUNDS))
    assert gateway.stop() == 0
    connection.close()


def test_taken_port_is_one_clear_line(gateway, tmp_path, capfd):
    with pytest.raises(RuntimeError):
        type(gateway)(tmp_path / "other.sqlite3", port=gateway.port)
    assert f"gateway: cannot listen on port {gateway.port}" in capfd.readouterr().err
