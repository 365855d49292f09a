"""What a sender sees: real SDKs sign, the server stores before it answers, and nothing genuine is refused or lost."""

import base64
import hashlib
import hmac
import json
import socket
import time
import unittest

from standardwebhooks.webhooks import Webhook
from datetime import datetime, timezone

from office import SECRET, Handler, Office, event, stripe_header, wait_for

STANDARD = "whsec_" + base64.b64encode(b"standard-webhooks-secret-bytes!!").decode()
SOURCES = f'''
[[source]]
name = "stripe"
scheme = "stripe"
secrets = ["env:STRIPE_SECRET", "whsec_the_old_secret_0123456789"]
target = "billing"
[[source]]
name = "live"
scheme = "stripe"
secrets = ["env:STRIPE_SECRET"]
livemode = true
target = "billing"
[[source]]
name = "standard"
scheme = "standard-webhooks"
secrets = ["{STANDARD}"]
target = "billing"
[[source]]
name = "github"
scheme = "github"
secrets = ["github-secret-0123456789"]
target = "billing"
[[source]]
name = "shop"
scheme = "hmac"
secrets = ["shop-secret-0123456789abc"]
key = "header:X-Shopify-Event-Id"
kind = "header:X-Shopify-Topic"
target = "billing"
hmac = {{ signature_header = "X-Shopify-Hmac-Sha256", encoding = "base64" }}
[[source]]
name = "open"
scheme = "none"
target = "billing"
max_body = "2MiB"
'''


class Receive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.handler = Handler()
        cls.office = Office(cls.handler, SOURCES).start()

    @classmethod
    def tearDownClass(cls):
        cls.office.close()
        cls.handler.close()

    def test_stripes_own_library_signs_and_the_event_reaches_the_handler_byte_for_byte(self):
        body = event("evt_sdk", kind="invoice.paid", subject="sub_sdk", account="acct_1")
        event_id = self.office.stored(body)
        shown = self.office.wait_state(event_id, "succeeded")
        self.assertEqual((shown["key"], shown["kind"], shown["subject"], shown["account"], shown["livemode"]),
                         ("evt_sdk", "invoice.paid", "sub_sdk", "acct_1", True))
        self.assertEqual(self.handler.bodies["evt_sdk"], body)
        headers = self.handler.headers_seen["evt_sdk"]
        self.assertEqual(headers["Idempotency-Key"], "stripe:evt_sdk")
        self.assertEqual((headers["Dlo-Attempt"], headers["Dlo-Replay"], headers["Dlo-Signature-Verified"]), ("1", "false", "true"))
        self.assertEqual(headers["Dlo-Kind"], "invoice.paid")
        self.assertIn("Stripe-Signature", headers)

    def test_a_redelivery_is_a_duplicate_also_with_another_pending_webhooks(self):
        body = event("evt_twice")
        first = self.office.stored(body)
        status, answer = self.office.send(body)
        self.assertEqual((status, answer), (200, {"status": "duplicate", "id": first}))
        status, answer = self.office.send(body.replace(b'"pending_webhooks": 1', b'"pending_webhooks": 0'))
        self.assertEqual((status, answer), (200, {"status": "duplicate", "id": first}))

    def test_the_same_key_with_other_content_is_a_conflict_letter_that_names_the_first(self):
        first = self.office.stored(event("evt_conflict", amount=1))
        status, answer = self.office.send(event("evt_conflict", amount=2))
        self.assertEqual((status, answer["status"], answer["conflict_with"]), (200, "stored", first))
        letter = self.office.get(f"/v1/events/{answer['id']}")
        self.assertEqual((letter["state"], letter["class"], letter["conflict_of"]), ("dead", "conflict", first))
        self.assertIn('dlo_dead_lettered_total{source="stripe",class="conflict"}', self.office.request("GET", "/metrics")[2].decode())

    def test_two_sources_may_use_the_same_key(self):
        a = self.office.stored(event("evt_shared"))
        b = self.office.stored(event("evt_shared"), source="live")
        self.assertNotEqual(a, b)

    def test_an_old_secret_still_verifies_and_is_named(self):
        event_id = self.office.stored(event("evt_rotated"), secret="whsec_the_old_secret_0123456789")
        self.assertEqual(self.office.get(f"/v1/events/{event_id}")["verdict"]["secret_id"], "secrets[1]")

    def test_unsigned_altered_and_stale_deliveries_are_rejected_and_kept_for_repair(self):
        body = event("evt_rejected")
        now = int(time.time())
        for headers in ({}, {"Stripe-Signature": stripe_header(body, "whsec_wrong_0123456789abcdef")},
                        {"Stripe-Signature": stripe_header(body + b" ")}, {"Stripe-Signature": stripe_header(body, timestamp=now - 400)},
                        {"Stripe-Signature": stripe_header(body, timestamp=now + 400)}, {"Stripe-Signature": "t=,v1="}):
            status, answer = self.office.send(body, headers=headers)
            self.assertEqual((status, answer), (401, {"status": "rejected"}), headers)
        rejected = wait_for("quarantine", lambda: [r for r in self.office.get("/v1/rejected")["items"] if r["source"] == "stripe"][5:] and
                            self.office.get("/v1/rejected")["items"])
        self.assertLessEqual({"missing_header", "no_match", "too_old", "too_far_ahead", "malformed"}, {r["reason"] for r in rejected})
        code, out, _ = self.office.cli("rejected")
        self.assertEqual(code, 0)
        self.assertIn("too_old", out)

    def test_a_test_mode_event_on_a_live_source_is_resolved_and_never_dispatched(self):
        event_id = self.office.stored(event("evt_testmode", livemode=False), source="live")
        shown = self.office.wait_state(event_id, "resolved")
        self.assertEqual(shown["resolve_code"], "test_event")
        self.assertEqual(self.handler.calls_of("evt_testmode"), [])

    def test_standard_webhooks_library(self):
        now = datetime.now(timezone.utc)
        body = json.dumps({"type": "user.created", "timestamp": now.isoformat(), "data": {"id": 1}})
        signature = Webhook(STANDARD).sign("msg_1", now, body)
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
        status, answer = self.office.send(body.encode(), source="standard", headers=headers)
        self.assertEqual(status, 200, answer)
        self.assertEqual(self.office.get(f"/v1/events/{answer['id']}")["key"], "msg_1")

    def test_github_and_a_configured_hmac_source(self):
        body = b'{"action":"purchased","marketplace_purchase":{"account":{"login":"octo"}}}'
        mac = hmac.new(b"github-secret-0123456789", body, hashlib.sha256)
        status, answer = self.office.send(body, source="github", headers={"X-Hub-Signature-256": "sha256=" + mac.hexdigest(),
                                                                          "X-GitHub-Delivery": "d-1", "X-GitHub-Event": "marketplace_purchase"})
        self.assertEqual(status, 200, answer)
        self.assertEqual(self.office.get(f"/v1/events/{answer['id']}")["kind"], "marketplace_purchase.purchased")
        mac = hmac.new(b"shop-secret-0123456789abc", body, hashlib.sha256)
        status, answer = self.office.send(body, source="shop", headers={"X-Shopify-Hmac-Sha256": base64.b64encode(mac.digest()).decode(),
                                                                        "X-Shopify-Event-Id": "s-1", "X-Shopify-Topic": "orders/paid"})
        self.assertEqual(status, 200, answer)
        self.assertEqual(self.office.get(f"/v1/events/{answer['id']}")["kind"], "orders/paid")

    def test_bodies_can_be_anything_and_come_back_as_they_were(self):
        bodies = [b"", b"\0", b"\0" * 1000, b"\xff\xfe\xc3", bytes(range(256)), b"{", b"null", b"x" * (1 << 20), b"[" * 5000,
                  b'{"id": 1e400}', "\ufeff{}".encode(), b"a=b&c=d"]
        for body in bodies:
            status, answer = self.office.send(body, source="open", headers={})
            self.assertEqual(status, 200, (body[:20], answer))
            status, headers, stored = self.office.request("GET", f"/v1/events/{answer['id']}/payload")
            self.assertEqual((status, stored), (200, body))
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["Dlo-Sha256"], hashlib.sha256(body).hexdigest())

    def test_a_genuine_body_that_cannot_be_read_is_a_dead_letter_of_class_invalid(self):
        for body in (b"not json", b'{"id": 12.5}', b'{"object": "event"}', b"\xff\xfe", b"", b"[" * 100):
            status, answer = self.office.send(body)
            self.assertEqual(status, 200, (body, answer))
            letter = self.office.get(f"/v1/events/{answer['id']}")
            self.assertEqual((letter["state"], letter["class"]), ("dead", "invalid"), body)
            self.assertTrue(letter["message"], body)

    def test_over_the_limit_is_413_declared_and_chunked_and_nothing_is_stored(self):
        before = self.office.get("/v1/stats")["accounting"]["receipts"]
        with socket.create_connection(("127.0.0.1", self.office.port)) as s:
            s.sendall(b"POST /in/stripe HTTP/1.1\r\nHost: x\r\nContent-Length: 10737418240\r\n\r\n")
            self.assertIn(b" 413 ", s.recv(4096).split(b"\r\n")[0])
        with socket.create_connection(("127.0.0.1", self.office.port)) as s:
            s.settimeout(10)
            s.sendall(b"POST /in/stripe HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            answer = b""
            try:
                for _ in range(40):
                    s.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            except OSError:
                pass
            try:
                answer = s.recv(4096)
            except ConnectionResetError:
                answer = b" 413 (reset before it could be read)"
            self.assertIn(b" 413 ", answer)
        self.assertEqual(self.office.get("/v1/stats")["accounting"]["receipts"], before)

    def test_a_truncated_body_is_not_stored(self):
        before = self.office.get("/v1/stats")["accounting"]["receipts"]
        with socket.create_connection(("127.0.0.1", self.office.port)) as s:
            s.sendall(b"POST /in/open HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this")
        time.sleep(0.2)
        self.assertEqual(self.office.get("/v1/stats")["accounting"]["receipts"], before)

    def test_other_refusals_say_what_is_wrong(self):
        self.assertEqual(self.office.send(b"{}", source="nowhere", headers={})[0], 404)
        self.assertEqual(self.office.send(b"{}", source="open", headers={"Content-Encoding": "gzip"})[0], 415)
        self.assertEqual(self.office.request("GET", "/in/open", token=None)[0], 405)


if __name__ == "__main__":
    unittest.main()
