"""What a sender sees at each limit of the edge, of memory and of tokens; and that retries keep to their budget."""

import json
import socket
import time
import unittest

from office import ADMIN, Handler, Office, event, free_port, stripe_header, wait_for


class Raw:
    """A connection that sends exactly what it is told to."""

    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=30)
        self.got = b""

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # closed meanwhile: what was answered is still read
        return self

    def until(self, text):
        while text not in self.got and self.read():
            pass
        return self.got

    def closed(self):
        """Reads to the end; a test that would hang fails instead."""
        while self.read():
            pass
        return True

    def read(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            return False
        self.got += data
        return bool(data)

    @property
    def status(self):
        return int(self.got.split(b" ", 2)[1]) if self.got.startswith(b"HTTP/1.1 ") else None

    def close(self):
        self.socket.close()


def get(path="/healthz", extra=b""):
    return b"GET " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\n" + extra + b"\r\n"


def post(length, extra=b"", path=b"/in/stripe"):
    return b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % length + extra + b"\r\n"


def own_address():
    """An address of this machine that is not loopback; None without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))  # sends nothing
            address = probe.getsockname()[0]
            return None if address.startswith("127.") or address == "0.0.0.0" else address
        except OSError:
            return None


class Limits(unittest.TestCase):
    def office(self, server=(), store=(), target="", handler=None):
        office = Office(handler, target=target)
        self.addCleanup(office.close)
        office.configure("[server]", *server)
        office.configure("[store]", *store)
        return office

    def connect(self, office, host="127.0.0.1"):
        raw = Raw(office.port, host)
        self.addCleanup(raw.close)
        return raw

    def deliver(self, office, key):
        body = event(key, subject=key)
        status, headers, answer = office.request("POST", "/in/stripe", body, token=None,
                                                 headers={"Stripe-Signature": stripe_header(body)})
        return status, json.loads(answer), headers

    def test_sizes_of_a_request(self):
        office = self.office(['max_request_line = 512', 'max_header_bytes = "1KiB"', 'max_header_fields = 12',
                              'max_admin_body = "1KiB"', 'max_requests_per_connection = 3']).start()
        for name, sent, want in (
                ("request line", get("/" + "a" * 600), 414),
                ("request line at the limit", get("/" + "a" * (512 - len("GET / HTTP/1.1\r\n"))), 404),
                ("header bytes", get(extra=b"X-Long: " + b"y" * 1024 + b"\r\n"), 431),
                ("header fields", get(extra=b"".join(b"X-%d: 1\r\n" % i for i in range(12))), 431),
                ("header fields at the limit", get(extra=b"".join(b"X-%d: 1\r\n" % i for i in range(11))), 200),
                ("declared body of a source", post(2 << 20), 413)):
            with self.subTest(name):
                raw = self.connect(office).send(sent)
                raw.until(b"\r\n\r\n")
                self.assertEqual(raw.status, want, raw.got)
                if want > 404:
                    self.assertTrue(raw.closed())
        self.assertEqual(office.request("POST", "/v1/replays", b"x" * 1025)[0], 413)
        self.assertEqual(office.request("POST", "/v1/replays", b" " * 1023, headers={"Content-Type": "application/json"})[0], 400)
        raw = self.connect(office).send(get() * 5)
        self.assertTrue(raw.closed())
        self.assertEqual(raw.got.count(b"HTTP/1.1 200"), 3, "the third answer is the connection's last")
        self.assertIn(b"Connection: close", raw.got)

    def test_slow_clients_are_closed(self):
        office = self.office(['head_deadline = "300ms"', 'idle_deadline = "300ms"', 'body_grace = "100ms"',
                              'min_body_rate = "1MiB"']).start()
        for name, sent in (("says nothing", b""), ("half a head", b"POST /in/stripe HTTP/1.1\r\nHost:"),
                           ("a body that drips", post(1000) + b"{"), ("idle after an answer", get())):
            with self.subTest(name):
                self.assertTrue(self.connect(office).send(sent).closed())
        office = self.office(['body_deadline = "300ms"', 'min_body_rate = 0']).start()
        self.assertTrue(self.connect(office).send(post(1000) + b"{").closed())

    def test_bodies_in_flight_are_bounded(self):
        office = self.office(['inflight_body_bytes = "1MiB"']).start()
        first = self.connect(office).send(post(700_000, b"Expect: 100-continue\r\n"))
        self.assertIn(b"100 Continue", first.until(b"\r\n\r\n"))  # its place is taken
        second = self.connect(office).send(post(700_000))
        second.until(b"\r\n\r\n")
        self.assertEqual(second.status, 503)
        self.assertIn(b"Retry-After: ", second.got)
        self.assertEqual(self.deliver(office, "evt_small")[0], 200, "there is room for small ones")
        first.close()

        def room():
            raw = self.connect(office).send(post(700_000, b"Expect: 100-continue\r\n"))
            answered = b"100 Continue" in raw.until(b"\r\n\r\n")
            raw.close()
            return answered
        wait_for("its place is free again", room)

    def test_connections_in_all(self):
        office = self.office(['max_connections = 4']).start()
        held = []

        def hold():  # those of the start may not be gone yet
            raw = self.connect(office).send(get())
            if b"200 OK" in raw.until(b"\r\n\r\n"):
                held.append(raw)
            return len(held) == 4
        wait_for("four are connected", hold)
        over = self.connect(office).send(get())
        self.assertTrue(over.closed())
        self.assertEqual(over.got, b"", "closed without an answer")
        held.pop().close()
        wait_for("the place is free", hold)

    @unittest.skipUnless(own_address(), "needs an address besides loopback")
    def test_connections_of_one_address(self):
        office = self.office(['max_connections_per_address = 2', f'listen = "0.0.0.0:{free_port()}"'])
        office.port = int(office.folder.joinpath("dlo.toml").read_text().split("0.0.0.0:")[1].split('"')[0])
        office.start()
        held = [self.connect(office, own_address()).send(get()) for _ in range(2)]
        for raw in held:
            self.assertIn(b"200 OK", raw.until(b"\r\n\r\n"))
        over = self.connect(office, own_address()).send(get())
        self.assertTrue(over.closed())
        self.assertEqual(over.got, b"")
        for _ in range(4):  # a proxy on this machine brings everybody's
            self.assertIn(b"200 OK", self.connect(office).send(get()).until(b"\r\n\r\n"))
        held.pop().close()

        def again():
            return b"200 OK" in self.connect(office, own_address()).send(get()).until(b"\r\n\r\n")
        wait_for("the place is free", again)

    def test_short_of_memory_senders_are_told_to_come_back(self):
        office = self.office(['max_memory = "1MiB"']).start()  # less than any process has
        wait_for("deliveries are refused", lambda: self.deliver(office, f"evt_{time.monotonic_ns()}")[0] == 503)
        status, answer, headers = self.deliver(office, "evt_refused")
        self.assertEqual((status, answer["code"]), (503, "memory_high"))
        self.assertTrue(5 <= int(headers["Retry-After"]) <= 60, headers)
        self.assertEqual(office.request("GET", "/v1/stats")[0], 200, "people can still look")
        self.assertIn('dlo_refused_total{source="stripe"}', office.request("GET", "/metrics")[2].decode())
        self.assertIn("server.max_memory", office.log())
        office.stop()
        office.configure("[server]", "max_memory = 0")
        office.start()
        self.assertEqual(self.deliver(office, "evt_refused")[0], 200)

    def test_five_bad_tokens_a_minute_and_a_good_one_passes(self):
        office = self.office().start()
        for n in range(5):
            self.assertEqual(office.request("GET", "/v1/stats", token=f"dlo_guess_{n}")[0], 401)
        status, headers, answer = office.request("GET", "/v1/stats", token="dlo_guess_more")
        self.assertEqual((status, json.loads(answer)["code"]), (429, "too_many_bad_tokens"))
        self.assertTrue(1 <= int(headers["Retry-After"]) <= 60, headers)
        self.assertEqual(office.request("GET", "/v1/stats", token=ADMIN)[0], 200)
        self.assertEqual(office.request("GET", "/v1/stats", token=None)[0], 401, "no token is no guess")
        self.assertEqual(self.deliver(office, "evt_1")[0], 200, "senders are not concerned")
        office = self.office(["bad_tokens_per_minute = 1"]).start()
        self.assertEqual([office.request("GET", "/v1/stats", token=f"dlo_guess_{n}")[0] for n in range(2)], [401, 429])

    def test_retries_keep_to_their_budget_and_fresh_events_do_not_wait(self):
        handler = Handler()
        self.addCleanup(handler.close)
        handler.script["invoice.payment_failed"] = lambda n, h: (422, {"Dlo-Outcome": "retryable"}, b"not yet")
        office = self.office(handler=handler, target='retry = ["100ms"]\nretry_budget_percent = 0\nretry_budget_min = 0.05').start()
        ids = [office.stored(event(f"evt_{n}", kind="invoice.payment_failed", subject=f"s{n}")) for n in range(12)]
        put_off = 'dlo_retries_deferred_total{target="billing"} 9'  # three a minute may go
        wait_for("nine are put off", lambda: put_off in office.request("GET", "/metrics")[2].decode())
        office.wait_state(office.stored(event("evt_fresh", subject="fresh")), "succeeded")
        self.assertEqual(sum(len(handler.calls_of(f"evt_{n}")) for n in range(12)), 15)
        states = [office.get(f"/v1/events/{i}") for i in ids]
        self.assertEqual(sorted(s["state"] for s in states), ["dead"] * 3 + ["waiting"] * 9)
        for state in states:
            self.assertEqual(state["attempts"], 2 if state["state"] == "dead" else 1, "putting off uses no attempt")
        waiting = next(s for s in states if s["state"] == "waiting")
        self.assertIn("deferred", office.cli("show", waiting["id"])[1])
        self.assertIn("retries_deferred", office.log())


if __name__ == "__main__":
    unittest.main()
