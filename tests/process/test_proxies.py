"""Behind a real proxy: whatever is sent through it, the server runs no message that the proxy did not hand over as one."""

import collections
import concurrent.futures
import re
import unittest

from office import Handler, Office, wait_for
from proxies import haproxy, installed, nginx
from raw_http import Raw, parse_answers, request

CODINGS = {"plain": b"Transfer-Encoding: chunked", "space before colon": b"Transfer-Encoding : chunked",
           "tab": b"Transfer-Encoding:\tchunked",
           "vertical tab": b"Transfer-Encoding: \x0bchunked", "form feed behind": b"Transfer-Encoding: chunked\x0c",
           "x": b"Transfer-Encoding: xchunked",
           "cut": b"Transfer-Encoding: chunk", "two, other last": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
           "two, other first": b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
           "identity first": b"Transfer-Encoding: identity, chunked",
           "identity last": b"Transfer-Encoding: chunked, identity", "gzip": b"Transfer-Encoding: gzip, chunked",
           "twice": b"Transfer-Encoding: chunked, chunked",
           "folded": b"Transfer-Encoding:\r\n chunked", "folded by tab": b"X: y\r\n\tTransfer-Encoding: chunked",
           "behind bare LF": b"X: y\nTransfer-Encoding: chunked",
           "behind bare CR": b"X: y\rTransfer-Encoding: chunked", "quoted": b'Transfer-Encoding: "chunked"',
           "capitals": b"TRANSFER-ENCODING: CHUNKED",
           "underscore": b"Transfer_Encoding: chunked", "NUL before": b"\0Transfer-Encoding: chunked",
           "NUL behind": b"Transfer-Encoding: chunked\0",
           "parameter": b"Transfer-Encoding: chunked;q=1", "comma": b"Transfer-Encoding: chunked,",
           "empty and chunked": b"Transfer-Encoding: ,chunked",
           "named by Connection": b"Transfer-Encoding: chunked\r\nConnection: Transfer-Encoding",
           "length named by Connection": b"X: y\r\nConnection: Content-Length"}


def pairs(source):
    """name -> bytes: a message that could be read as two, or two as one. The inner one asks for what the outer does not."""
    rows = {}

    def post(name, lines, body, version=b"1.1", method=b"POST"):
        target = f"/in/{source}?{re.sub('[^a-z0-9]', '-', name.lower())}".encode()
        head = b"%s %s HTTP/%s\r\nHost: localhost\r\n" % (method, target, version)
        rows[name] = head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body

    def length(body):
        return b"Content-Length: %d" % len(body)

    inner = request("POST", f"/in/{source}-hidden", b"hidden", ["Connection: close"])
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
    short = len(chunk) - len(inner) - len(b"\r\n0\r\n\r\n")
    for name, coding in CODINGS.items():
        post(f"{name}: by length it is one", [length(b"0\r\n\r\n" + inner), coding], b"0\r\n\r\n" + inner)
        post(f"{name}: by coding it is one", [b"Content-Length: %d" % short, coding], chunk)
        post(f"{name}: coding first", [coding, b"Content-Length: %d" % short], chunk)
    body = b"hello" + inner
    for name, lines in {"short, long": [b"Content-Length: 5", length(body)], "long, short": [length(body), b"Content-Length: 5"],
                        "list": [b"Content-Length: 5, 5"], "list of two": [b"Content-Length: 5, %d" % len(body)],
                        "plus": [b"Content-Length: +5"],
                        "hex": [b"Content-Length: 0x5"], "two words": [b"Content-Length: 5 5"], "zeros": [b"Content-Length: 0005"],
                        "space before colon": [length(body).replace(b":", b" :")], "folded": [b"Content-Length:\r\n 5"],
                        "minus": [b"Content-Length: -5"],
                        "tabs": [b"Content-Length: \t5\t"], "vertical tab": [b"Content-Length: \x0b5"], "empty": [b"Content-Length:"],
                        "equal twice": [b"Content-Length: 5"] * 2,
                        "underscore": [b"Content_Length: %d" % len(body), b"Content-Length: 5"],
                        "behind bare CR": [b"X: y\rContent-Length: 5"],
                        "over 64 bits": [b"Content-Length: 18446744073709551621"],
                        "named by Connection": [length(body), b"Connection: Content-Length"],
                        "whole": [length(body)], "none": []}.items():
        post(f"length {name}", lines, body)
    for method in (b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"PUT"):
        post(f"{method.decode()} with a body", [length(inner)], inner, method=method)
        post(f"{method.decode()} with chunks", [CODINGS["plain"]], chunk, method=method)
    for name, lines in {"chunked": [CODINGS["plain"]], "both": [b"Content-Length: 5", CODINGS["plain"]],
                        "kept alive": [b"Connection: keep-alive", CODINGS["plain"]]}.items():
        post(f"HTTP/1.0 {name}", lines, chunk, version=b"1.0")
    for name, data in {"size 0x": b"0x5\r\nhello\r\n", "size +": b"+5\r\nhello\r\n", "size with space": b"5 \r\nhello\r\n",
                       "size of 20 digits": b"0" * 19 + b"5\r\nhello\r\n",
                       "size with bare LF": b"5\nhello\r\n", "size that wraps": b"10000000000000005\r\nhello\r\n",
                       "data with bare LF": b"5\r\nhello\n", "data without end": b"5\r\nhello",
                       "extension": b"5;a=b\r\nhello\r\n", "extension with bare LF": b"5;a\nhello\r\n",
                       "quoted extension": b'5;a="\r\n"\r\nhello\r\n', "bare CR": b"5\rhello\r\n"}.items():
        post(f"chunk {name}", [CODINGS["plain"]], data + b"0\r\n\r\n" + inner)
    for name, data in {"trailer": b"0\r\nX: y\r\n\r\n", "trailer of a length": b"0\r\nContent-Length: 5\r\n\r\n",
                       "end with bare LF": b"0\r\n\n", "last 0x0": b"0x0\r\n\r\n",
                       "last -0": b"-0\r\n\r\n", "last 00": b"00\r\n\r\n", "no end": b"0\r\n"}.items():
        post(f"end {name}", [CODINGS["plain"]], b"5\r\nhello\r\n" + data + inner)
    post("expects", [b"Expect: 100-continue", length(body)], body)
    post("expects otherwise", [b"Expect: 100-continuex", length(body)], body)
    post("upgrades", [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
                      length(b"hello")], b"hello" + inner)
    post("two hosts", [b"Host: other", length(body)], body)
    rows["absolute address"] = request("POST", f"http://localhost/in/{source}?absolute", body)
    rows["encoded line end"] = request("POST", f"/in/{source}?a%20HTTP/1.1%0d%0aHost:%20localhost%0d%0aContent-Length:%200%0d%0a%0d%0a",
                                       body)
    rows["empty lines first"] = b"\r\n\r\n" + request("POST", f"/in/{source}?empty-lines", b"hello") + inner
    return rows


@unittest.skipUnless(installed("nginx") and installed("haproxy"), "needs nginx and haproxy: ./test installs them")
class Proxies(unittest.TestCase):
    FRONTS = {"nginx": (nginx, ""),
              "nginx-passing": (nginx,
                                "proxy_request_buffering off; ignore_invalid_headers off; underscores_in_headers on; merge_slashes off;"),
              "haproxy": (haproxy, ""),
              "haproxy-passing": (haproxy, "option accept-invalid-http-request\n  option http-buffer-request")}

    @classmethod
    def setUpClass(cls):
        cls.handler = Handler()
        names = [name + end for name in cls.FRONTS for end in ("", "-hidden", "-clean")]
        cls.office = Office(cls.handler,
                            "".join(f'[[source]]\nname = "{name}"\nscheme = "none"\ntarget = "billing"\n' for name in names)).start()
        cls.fronts = {name: make(name, cls.office.folder, cls.office.port, settings) for name, (make, settings) in cls.FRONTS.items()}

    @classmethod
    def tearDownClass(cls):
        for front in cls.fronts.values():
            front.close()
        cls.office.close()
        cls.handler.close()

    def received(self):
        """source -> deliveries that the server stored."""
        text = self.office.request("GET", "/metrics")[2].decode()
        return collections.Counter({name: int(n) for name, n in re.findall(r'dlo_received_total\{source="([^"]+)"\} (\d+)', text)})

    def stored_of(self, front):
        """The same, as the proxy saw it."""
        stored = collections.Counter()
        for status, line in front.forwarded():
            found = re.search(r"/in/([a-z-]+)", line)
            if status == "200" and found:
                stored[found.group(1)] += 1
        return stored

    def attack(self, front, name, data):
        """Sends the pair, then a clean message of another client; returns what went wrong."""
        with Raw(front.port) as raw:
            raw.send(data).read_all()
        clean = f"clean behind {name}".encode()
        with Raw(front.port) as raw:
            raw.send(request("POST", f"/in/{front.name}-clean", clean, ["Connection: close"]))
            received = raw.read_all()
        try:
            answer = parse_answers(received)[0]
        except (AssertionError, IndexError):
            return f"{name}: a clean message behind it got {received[:200]!r}"
        event_id = re.search(rb'"id":(\d+)', answer.body)
        if answer.status != 200 or not event_id:
            return f"{name}: a clean message behind it got {answer}"
        stored = self.office.request("GET", f"/v1/events/{int(event_id.group(1))}/payload")[2]
        return None if stored == clean else f"{name}: a clean message behind it got the answer of {stored[:200]!r}"

    def test_ambiguous_messages_are_counted_alike_by_the_proxy_and_the_server(self):
        rows = {name: pairs(name) for name in self.fronts}
        with concurrent.futures.ThreadPoolExecutor(48) as pool:
            waiting = {name: [pool.submit(self.attack, front, row, data) for row, data in rows[name].items()] for name,
                       front in self.fronts.items()}
            wrong = {name: [f.result() for f in futures if f.result()] for name, futures in waiting.items()}
        for name, front in self.fronts.items():
            with self.subTest(name):
                self.assertEqual(wrong[name], [])
                sources = [name, name + "-hidden", name + "-clean"]

                def counts():
                    received, stored = self.received(), self.stored_of(front)
                    return [(s, received[s], stored[s]) for s in sources]
                try:
                    wait_for("proxy and server agree", lambda: all(ours == theirs for _, ours, theirs in counts()), 15)
                except AssertionError:
                    self.fail(f"(source, stored by the server, as the proxy saw it): {counts()}")
                self.assertEqual(self.received()[name + "-clean"], len(rows[name]))
                self.assertGreater(self.received()[name], 0, "the proxy let nothing through")
                self.assertLessEqual(front.relay.answers(), len(front.forwarded()),
                                     "the server saw more messages than the proxy handed over")

    def test_plain_messages_pass_and_connections_are_used_again(self):
        for name, front in self.fronts.items():
            with self.subTest(name):
                before, streams, answers = len(front.forwarded()), len(front.relay.streams), front.relay.answers()
                for i in range(20):
                    with Raw(front.port) as raw:
                        raw.send(request("POST", f"/in/{name}", f"plain {i}".encode(), ["Connection: close"]))
                        self.assertEqual([a.status for a in parse_answers(raw.read_all())], [200])
                wait_for("all are told", lambda: len(front.forwarded()) == before + 20)
                self.assertEqual(front.relay.answers() - answers, 20)
                self.assertLess(len(front.relay.streams) - streams, 20,
                                "each message had a connection of its own: nothing could be smuggled")


if __name__ == "__main__":
    unittest.main()
