"""Clients that hold connections and give nothing: cut when their time is over, while who behaves goes on being served."""

import http.client
import os
import resource
import select
import socket
import ssl
import subprocess
import threading
import time
import unittest

from office import ADMIN, Handler, Office, event, stripe_header, wait_for
from raw_http import request

SOURCES = '''
[[source]]
name = "stripe"
scheme = "stripe"
secrets = ["env:STRIPE_SECRET"]
target = "billing"
[[source]]
name = "open"
scheme = "none"
target = "billing"
'''
HEAD, BODY, WRITE, HANDSHAKE = 10, 5, 10, 10  # seconds, as docs/operating.md says
ROUNDING = 0.2  # deadlines are looked at ten times a second
CLIENT_HELLO_BEGINS = bytes.fromhex("1603010200010001fc0303")


class Kind:
    """What one sort of slow client says at first and, bit by bit, afterwards; the least time after which it may be cut."""

    def __init__(self, port, at_least, first=b"", drip=b"", reads=True):
        self.port, self.at_least, self.first, self.drip, self.reads = port, at_least, first, drip, reads
        self.ages, self.opened = [], 0


class Crowd(threading.Thread):
    """Keeps so many connections of each kind open; one that is cut is replaced until let_go()."""

    def __init__(self, kinds):
        super().__init__(daemon=True)
        self.kinds = kinds  # kind -> how many
        self.poll = select.epoll()
        self.open = {}  # descriptor -> (socket, kind, since)
        self.replacing = True
        self.whole = threading.Event()
        self.over = threading.Event()
        self.error = None

    def enter(self, kind):
        s = socket.socket()
        if not kind.reads:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        since = time.monotonic()
        s.connect(("127.0.0.1", kind.port))
        s.setblocking(False)
        if kind.first:
            try:
                s.send(kind.first)
            except OSError:
                pass
        # A reset is told to those that do not read as well.
        self.poll.register(s, select.EPOLLIN if kind.reads else 0)
        self.open[s.fileno()] = (s, kind, since)
        kind.opened += 1

    def leave(self, descriptor):
        s, kind, since = self.open.pop(descriptor)
        self.poll.unregister(descriptor)
        s.close()
        kind.ages.append(time.monotonic() - since)
        if self.replacing:
            self.enter(kind)

    def run(self):
        try:
            for kind, count in self.kinds.items():
                for _ in range(count):
                    self.enter(kind)
            self.whole.set()
            next_drip = time.monotonic()
            while self.open:
                for descriptor, events in self.poll.poll(0.2):
                    if self.gone(descriptor, events):
                        self.leave(descriptor)
                if time.monotonic() >= next_drip:
                    next_drip += 1
                    for s, kind, _ in list(self.open.values()):
                        if kind.drip:
                            try:
                                s.send(kind.drip)
                            except OSError:
                                pass
        except Exception as e:  # told by the test
            self.error = e
        self.whole.set()
        self.over.set()

    def gone(self, descriptor, events):
        if events & (select.EPOLLHUP | select.EPOLLERR):
            return True
        try:
            return not self.open[descriptor][0].recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def let_go(self):
        self.replacing = False


def sockets_of(process):
    count = 0
    for name in os.listdir(f"/proc/{process.pid}/fd"):
        try:
            count += os.readlink(f"/proc/{process.pid}/fd/{name}").startswith("socket:")
        except OSError:
            pass
    return count


def room_for(descriptors):
    """Lets this process, and the servers it starts, have that many; returns how many there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < descriptors:
        soft = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


class SlowClients(unittest.TestCase):
    def setUp(self):
        self.handler = Handler()
        self.addCleanup(self.handler.close)

    def office(self, server):
        office = Office(self.handler, SOURCES)
        office.write_config((office.folder / "dlo.toml").read_text().replace("[server]", "[server]\n" + server, 1))
        self.addCleanup(office.close)
        return office

    def tls_office(self, server):
        office = self.office(server)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj",
                        "/CN=localhost",
                        "-keyout", office.folder / "key.pem", "-out", office.folder / "cert.pem"], check=True, capture_output=True)
        config = (office.folder / "dlo.toml").read_text()
        office.write_config(config.replace("[server]",
                                           f'[server]\ntls_cert = "{office.folder}/cert.pem"\ntls_key = "{office.folder}/key.pem"', 1))
        office.launch()
        wait_for("the TLS server answers", lambda: self.over_tls(office,
                                                                 request("GET", "/readyz",
                                                                         headers=["Connection: close"])).startswith(b"HTTP/1.1 200"), 60)
        return office

    def over_tls(self, office, data):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with socket.create_connection(("127.0.0.1", office.port), timeout=30) as plain, context.wrap_socket(plain) as s:
                s.sendall(data)
                answer = b""
                while part := s.recv(65536):
                    answer += part
                return answer
        except ConnectionError:
            if office.process.poll() is not None:
                raise AssertionError(office.log())
            return b""

    def test_who_behaves_is_served_while_hundreds_hold_on_and_all_of_those_are_cut_in_time(self):
        scale = min(1.0, room_for(4096) / 4096)
        plain, tls = self.office("max_connections = 4000").start(), self.tls_office("max_connections = 4000")
        large = plain.stored(b"x" * 60_000, source="open", headers={})  # written within WRITE, without more for its size
        payload = request("GET", f"/v1/events/{large}/payload", headers=[f"Authorization: Bearer {ADMIN}"])
        before = sockets_of(plain.process), sockets_of(tls.process)
        post = b"POST /in/open HTTP/1.1\r\nHost: localhost\r\n"
        kinds = {Kind(plain.port, HEAD): 250,
                 Kind(plain.port, HEAD, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", b"y"): 200,
                 Kind(plain.port, HEAD, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n"): 100,
                 Kind(plain.port, BODY, post + b"Content-Length: 100000\r\n\r\n", b"x"): 200,
                 Kind(plain.port, BODY, post + b"Content-Length: 100000\r\n\r\n"): 50,
                 Kind(plain.port, BODY, post + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"): 150,
                 Kind(plain.port, WRITE, payload * 400, reads=False): 50,
                 Kind(tls.port, HANDSHAKE): 400,
                 Kind(tls.port, HANDSHAKE, CLIENT_HELLO_BEGINS, b"\0"): 200}
        kinds = {kind: max(1, int(count * scale)) for kind, count in kinds.items()}
        crowd = Crowd(kinds)
        crowd.start()
        self.assertTrue(crowd.whole.wait(120), "the crowd never came together")
        slowest = 0
        for i in range(25):
            for office in (plain, tls):
                began = time.monotonic()
                body = event(f"evt_healthy_{i}", subject=f"s{i}")
                if office is plain:
                    self.assertEqual(office.send(body)[0], 200)
                else:
                    answer = self.over_tls(office, request("POST", "/in/stripe", body,
                                                           [f"Stripe-Signature: {stripe_header(body)}", "Connection: close"]))
                    self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer[:200])
                slowest = max(slowest, time.monotonic() - began)
        crowd.let_go()
        self.assertLess(slowest, HEAD, "who behaves waited for who does not")
        self.assertTrue(crowd.over.wait(120), "some are still connected")
        self.assertIsNone(crowd.error)
        for kind in kinds:
            with self.subTest(first=kind.first[:100], port=kind.port):
                self.assertEqual(len(kind.ages), kind.opened)
                self.assertGreater(min(kind.ages), kind.at_least - ROUNDING, "cut before its time")
                # One that is cut only when its whole 30 s are over is not slow, it is patient: twice the time is for a loaded machine.
                self.assertLess(sorted(kind.ages)[len(kind.ages) // 2], 2 * HEAD + kind.at_least, "cut far too late")
        to_the_handler = 8  # connections are kept, up to the target's concurrency
        for office, count in zip((plain, tls), before):
            wait_for("their descriptors are free", lambda: sockets_of(office.process) <= count + to_the_handler, 60)
        wait_for("every healthy event took effect", lambda: all(f"evt_healthy_{i}" in self.handler.effects for i in range(25)), 60)
        self.assertEqual(plain.difference(), 0)

    def test_connections_never_take_the_descriptors_that_the_store_and_the_targets_need(self):
        if room_for(2048) < 2048:
            self.skipTest("fewer than 2,048 descriptors are allowed here")
        for name, limit, others_are_served in (("a low limit that can be raised is", "--nofile=256:2048", True),
                                               ("one that cannot be makes for fewer connections", "--nofile=600:600", False)):
            with self.subTest(name):
                office = self.office("")
                office.prefix = ["prlimit", limit]
                office.start()
                kept = http.client.HTTPConnection("127.0.0.1", office.port, timeout=60)
                kept.connect()
                idle = [socket.create_connection(("127.0.0.1", office.port)) for _ in range(900)]
                key = "evt_" + limit[-3:]
                body = event(key, subject=key)
                kept.request("POST", "/in/stripe", body, {"Stripe-Signature": stripe_header(body)})
                self.assertEqual(kept.getresponse().status, 200)
                wait_for("the handler is called", lambda: key in self.handler.effects)
                if others_are_served:
                    self.assertEqual(office.request("GET", "/readyz", token=None)[0], 200)
                else:
                    self.assertIn("serve.few_descriptors", office.log())
                self.assertNotIn("accept_failed", office.log())
                for s in (kept, *idle):
                    s.close()


if __name__ == "__main__":
    unittest.main()
