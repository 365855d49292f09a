"""Requests that no decent client sends: each is refused with its status and the connection closed, nothing that stands
behind it runs, nothing without end is read for ever, and what is encoded stays encoded."""

import json
import unittest
import urllib.parse

from office import ADMIN, Office, event, stripe_header, wait_for
from raw_http import Raw, RawHandler, request

SOURCES = '''
[[source]]
name = "open"
scheme = "none"
target = "billing"
max_body = "256KiB"
[[source]]
name = "json"
scheme = "none"
target = "billing"
key = "/id"
kind = "/type"
subject = "/subject"
[[source]]
name = "headed"
scheme = "none"
target = "billing"
key = "header:X-Id"
kind = "header:X-Kind"
[[source]]
name = "stripe"
scheme = "stripe"
secrets = ["env:STRIPE_SECRET"]
target = "billing"
'''
POST = b"POST /in/open HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CANARY = request("POST", "/in/open", b"canary", ["Connection: close"])
# All that our answers may say of themselves; a header of any other name was injected.
OURS = {"date", "content-length", "content-type", "connection", "allow", "retry-after", "www-authenticate", "cache-control",
        "x-content-type-options", "content-disposition", "content-security-policy", "dlo-sha256"}


class HostileHttp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.handler = RawHandler()
        cls.office = Office(cls.handler, SOURCES)
        # An encoded line end in the address of a target must arrive as it is written.
        config = (cls.office.folder / "dlo.toml").read_text()
        cls.office.write_config(config.replace("/webhooks", "/hook%0d%0aX-Injected:%20yes"))
        cls.office.start()

    @classmethod
    def tearDownClass(cls):
        cls.office.close()
        cls.handler.close()

    def receipts(self):
        return self.office.get("/v1/stats")["accounting"]["receipts"]

    def assert_refused(self, name, raw, status):
        answers = raw.answers()
        self.assertEqual([a.status for a in answers], [status], name)
        self.assertEqual(answers[0].headers.get("connection"), "close", name)
        self.assertTrue(raw.closed, f"{name}: the connection stays open")

    def assert_all_refused(self, rows, status=400):
        """One answer, then closed: the canary behind each row was not run."""
        before = self.receipts()
        for name, data in rows.items():
            with self.subTest(name), Raw(self.office.port) as raw:
                raw.send(data + CANARY).finish()
                self.assert_refused(name, raw, status)
        self.assertEqual(self.receipts(), before, "something was stored")

    def assert_cut(self, rows, status):
        """Each row is a beginning and what follows it without end: the server answers and closes before it is over."""
        before = self.receipts()
        for name, (start, piece) in rows.items():
            with self.subTest(name), Raw(self.office.port) as raw:
                raw.send(start).pour(piece)
                self.assert_refused(name, raw, status)
        self.assertEqual(self.receipts(), before, "something was stored")

    def resident(self):
        with open(f"/proc/{self.office.process.pid}/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))

    def test_a_canary_alone_does_run(self):
        before = self.receipts()
        with Raw(self.office.port) as raw:
            self.assertEqual([a.status for a in raw.send(CANARY).answers()], [200])
        self.assertEqual(self.receipts(), before + 1)

    def test_a_body_declared_too_large_is_refused_before_it_is_read(self):
        before, resident = self.receipts(), self.resident()
        token = f"Authorization: Bearer {ADMIN}\r\n".encode()
        for name, head, status in (("10 GiB", POST + b"Content-Length: 10737418240\r\n", 413),
                                   ("one byte over", POST + b"Content-Length: 262145\r\n", 413),
                                   ("the largest number", POST + b"Content-Length: 18446744073709551615\r\n", 413),
                                   ("the client waits to be told", POST + b"Content-Length: 10737418240\r\nExpect: 100-continue\r\n", 413),
                                   ("an admin call",
                                    b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\n" + token + b"Content-Length: 10737418240\r\n", 413),
                                   ("an admin call of a stranger",
                                    b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10737418240\r\n", 401)):
            with self.subTest(name), Raw(self.office.port) as raw:
                self.assert_refused(name, raw.send(head + b"\r\n"), status)
        self.assertEqual(self.receipts(), before)
        self.assertLess(self.resident() - resident, 1 << 30, "room was made for what was only announced")

    def test_a_chunked_body_without_end_is_cut_at_the_cap(self):
        token = f"Authorization: Bearer {ADMIN}\r\n".encode()
        admin = b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\n" + token + b"Transfer-Encoding: chunked\r\n\r\n"
        self.assert_cut({"large chunks": (CHUNKED, b"4000\r\n" + b"x" * 0x4000 + b"\r\n"),
                         "chunks of one byte": (CHUNKED, b"1\r\nx\r\n"),
                         "one chunk without end": (CHUNKED + b"7fffffffffffffff\r\n", b"x"),
                         "an admin call": (admin, b"4000\r\n" + b" " * 0x4000 + b"\r\n")}, 413)

    def test_malformed_chunks(self):
        rows = {"negative size": b"-1\r\nx\r\n", "0x": b"0x1\r\nx\r\n", "plus": b"+1\r\nx\r\n", "space before": b" 1\r\nx\r\n",
                "space after": b"1 \r\nx\r\n", "tab after": b"1\t\r\nx\r\n", "17 digits": b"00000000000000001\r\nx\r\n",
                "underscore": b"1_0\r\n" + b"x" * 16 + b"\r\n", "no digit": b"\r\nx\r\n", "letter that is no digit": b"g\r\nx\r\n",
                "size ends with bare LF": b"1\nx\r\n", "size ends with bare CR": b"1\rx\r\n", "no line end behind the data": b"1\r\nx",
                "more data than said": b"1\r\nxy\r\n", "data ends with bare LF": b"1\r\nx\n", "data ends with bare CR": b"1\r\nx\r",
                "NUL in the size": b"1\0\r\nx\r\n", "a quoted size": b'"1"\r\nx\r\n'}
        self.assert_all_refused({name: CHUNKED + chunk + b"0\r\n\r\n" for name, chunk in rows.items()})
        self.assert_all_refused({"last chunk with bare LF": CHUNKED + b"1\r\nx\r\n0\n\r\n",
                                 "end with bare LF": CHUNKED + b"1\r\nx\r\n0\r\n\n",
                                 "last chunk is -0": CHUNKED + b"-0\r\n\r\n", "last chunk is 0x0": CHUNKED + b"0x0\r\n\r\n"})
        self.assert_all_refused({"a size that wraps round": CHUNKED + b"ffffffffffffffff\r\nx\r\n0\r\n\r\n"}, 413)

    def test_chunk_extensions_and_trailers_are_refused_also_without_end(self):
        self.assert_all_refused({"extension": CHUNKED + b"1;a=b\r\nx\r\n0\r\n\r\n",
                                 "quoted extension": CHUNKED + b'1;a="\r\n"\r\nx\r\n0\r\n\r\n',
                                 "extension with bare LF": CHUNKED + b"1;a\nx\r\n0\r\n\r\n",
                                 "of the last chunk": CHUNKED + b"0;a=b\r\n\r\n",
                                 "trailer": CHUNKED + b"1\r\nx\r\n0\r\nX: y\r\n\r\n",
                                 "trailer that is a length": CHUNKED + b"1\r\nx\r\n0\r\nContent-Length: 5\r\n\r\n"})
        self.assert_cut({"extension": (CHUNKED + b"1;", b"a"), "extensions": (CHUNKED, b"1;a=b\r\nx\r\n"),
                         "trailer": (CHUNKED + b"0\r\nX: ", b"y"),
                         "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"), "digits": (CHUNKED, b"0")}, 400)

    def test_a_body_whose_end_could_be_read_in_two_ways(self):
        end = b"0\r\n\r\n"
        cl, te = b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"
        rows = {"both, length first": POST + cl + te, "both, coding first": POST + te + cl,
                "both, names in capitals": POST + cl.upper() + te.upper(), "both, length 0": POST + b"Content-Length: 0\r\n" + te,
                "two lengths": POST + cl + b"Content-Length: 6\r\n", "two equal lengths": POST + cl + cl,
                "two lengths far apart": POST + cl + b"X: y\r\n" * 50 + b"content-length: 0\r\n",
                "list of lengths": POST + b"Content-Length: 5, 5\r\n", "list of two lengths": POST + b"Content-Length: 5, 6\r\n",
                "signed length": POST + b"Content-Length: +5\r\n", "negative length": POST + b"Content-Length: -5\r\n",
                "hex length": POST + b"Content-Length: 0x5\r\n", "length in words": POST + b"Content-Length: five\r\n",
                "length with a point": POST + b"Content-Length: 5.0\r\n", "length in two parts": POST + b"Content-Length: 0 5\r\n",
                "empty length": POST + b"Content-Length: \r\n", "length over 64 bits": POST + b"Content-Length: 18446744073709551621\r\n",
                "coding list": POST + b"Transfer-Encoding: gzip, chunked\r\n",
                "chunked not last": POST + b"Transfer-Encoding: chunked, gzip\r\n",
                "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n", "two codings": POST + te + te,
                "two codings, one identity": POST + b"Transfer-Encoding: identity\r\n" + te,
                "identity": POST + b"Transfer-Encoding: identity\r\n" + cl,
                "unknown coding": POST + b"Transfer-Encoding: xchunked\r\n", "quoted coding": POST + b'Transfer-Encoding: "chunked"\r\n',
                "coding with a parameter": POST + b"Transfer-Encoding: chunked;q=1\r\n", "empty coding": POST + b"Transfer-Encoding:\r\n",
                "vertical tab before the coding": POST + b"Transfer-Encoding: \x0bchunked\r\n",
                "coding in HTTP/1.0": POST.replace(b"1.1", b"1.0") + te,
                "both in HTTP/1.0": POST.replace(b"1.1", b"1.0") + te + cl,
                "GET with both": GET + cl + te}
        self.assert_all_refused({name: head + b"\r\n" + end for name, head in rows.items()})

    def test_malformed_heads(self):
        rows = {"folded, space": GET + b"X: a\r\n b\r\n", "folded, tab": GET + b"X: a\r\n\tb\r\n",
                "folded length": POST + b"Content-Length:\r\n 5\r\n", "folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n",
                "space before the first field": b"GET /healthz HTTP/1.1\r\n Host: localhost\r\n", "space before colon": GET + b"X : y\r\n",
                "tab before colon": GET + b"X\t: y\r\n", "length, space before colon": POST + b"Content-Length : 5\r\n",
                "coding, space before colon": POST + b"Transfer-Encoding : chunked\r\n", "bare CR in a value": GET + b"X: a\rb\r\n",
                "bare CR as line end": GET + b"X: a\rY: b\r\n", "bare CR before the line end": GET + b"X: a\r\r\n",
                "bare LF as line end": GET + b"X: a\nY: b\r\n", "bare LF before a coding": POST + b"X: a\nTransfer-Encoding: chunked\r\n",
                "NUL in a value": GET + b"X: a\0b\r\n", "NUL in a name": GET + b"X\0: a\r\n",
                "NUL in the path": b"GET /a\0b HTTP/1.1\r\nHost: localhost\r\n",
                "NUL before a coding": POST + b"\0Transfer-Encoding: chunked\r\n", "DEL in a value": GET + b"X: \x7f\r\n",
                "empty name": GET + b": y\r\n", "no colon": GET + b"XY\r\n", "name with a space": GET + b"X Y: z\r\n",
                "name with a bracket": GET + b"X(Y: z\r\n", "high byte in a name": GET + b"X\xe9: z\r\n",
                "two hosts": GET + b"Host: y\r\n", "no host": b"GET /healthz HTTP/1.1\r\n",
                "lower-case protocol": b"GET /healthz http/1.1\r\nHost: localhost\r\n",
                "HTTP/2.0": b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n", "no protocol": b"GET /healthz\r\n",
                "two spaces": b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n",
                "tab for a space": b"GET\t/healthz HTTP/1.1\r\nHost: localhost\r\n",
                "absolute address": b"GET http://x/healthz HTTP/1.1\r\nHost: localhost\r\n",
                "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n",
                "empty line first": b"\r\n" + GET, "bare CR first": b"\r" + GET, "HTTP/2 from the start": b"PRI * HTTP/2.0\r\n"}
        self.assert_all_refused({name: head + b"\r\n" for name, head in rows.items()})

    def test_header_bombs(self):
        self.assert_all_refused({"101 fields": GET + b"X: y\r\n" * 100 + b"\r\n",
                                 "many small fields over 16 KiB": GET + (b"X: " + b"y" * 200 + b"\r\n") * 90 + b"\r\n",
                                 "one field over 16 KiB": GET + b"X: " + b"y" * 16384 + b"\r\n\r\n",
                                 "a name over 16 KiB": GET + b"X" * 16384 + b": y\r\n\r\n"}, 431)
        self.assert_cut({"fields without end": (GET, b"X: y\r\n"), "a value without end": (GET + b"X: ", b"y"),
                         "a name without end": (GET, b"X")}, 431)
        self.assert_all_refused({"request line over 8 KiB": b"GET /" + b"a" * 8192 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"}, 414)
        self.assert_cut({"a request line without end": (b"GET /", b"a"), "a method without end": (b"", b"G")}, 414)

    def test_line_ends_in_a_path_or_query_never_reach_the_head_of_an_answer(self):
        inject = "%0d%0aX-Injected:%20yes%0d%0a%0d%0a"
        for path in (f"/{inject}", f"/in/{inject}", f"/in/open{inject}", f"/v1/events/1{inject}", f"/v1/sources/{inject}/resume",
                     f"/v1/dead-letters?source={inject}", f"/v1/dead-letters?{inject}=x", f"/v1/dead-letters?cursor={inject}",
                     f"/healthz?{inject}",
                     "/in/open%250d%250aX-Injected:x", "/in/open%c0%8d%c0%8aX-Injected:x", "/in/open%u000d%u000aX-Injected:x"):
            for method in ("GET", "POST", "PUT"):
                with self.subTest(path, method=method), Raw(self.office.port) as raw:
                    raw.send(request(method, path, b"{}", [f"Authorization: Bearer {ADMIN}", "Connection: close"]))
                    answers = raw.answers()
                    self.assertEqual(len(answers), 1)
                    self.assertLessEqual(set(answers[0].headers), OURS)

    def test_line_ends_in_what_a_person_writes_never_reach_the_head_of_an_answer(self):
        text = "a\r\nX-Injected: yes"
        event_id = self.office.stored(b"for the desk", source="open", headers={})
        for path, body in (("/v1/tokens", {"name": text, "role": "viewer"}),
                           (f"/v1/dead-letters/{event_id}/hold", {"link": text, "reason": text}),
                           (f"/v1/dead-letters/{event_id}/resolve", {"code": text, "reason": text}),
                           ("/v1/replays", {"filter": {"kind": text}, "reason": text})):
            with self.subTest(path):
                _, headers, _ = self.office.request("POST", path, body)
                self.assertLessEqual({name.lower() for name in headers}, OURS)

    def head_at_the_handler(self, body):
        """The lines of the request in which the handler got this body."""
        found = wait_for("the handler is called", lambda: [head for head, got in self.handler.requests if got == body])
        return found[0].decode("latin-1").split("\r\n")

    def test_encoded_line_ends_reach_the_handler_as_they_came(self):
        value = "k%0d%0aX-Injected: yes"
        self.office.stored(b"headed", source="headed", headers={"X-Id": value, "X-Kind": value, "X-Other": value})
        head = self.head_at_the_handler(b"headed")
        self.assertEqual(head[0], "POST /hook%0d%0aX-Injected:%20yes HTTP/1.1", "of the target's address")
        self.assertIn(f"X-Other: {value}", head)
        for name in ("Dlo-Event-Key", "Dlo-Kind"):
            self.assertEqual([urllib.parse.unquote(line.partition(": ")[2]) for line in head if line.startswith(name)], [value])
        self.assertFalse([line for line in head if line.lower().startswith("x-injected")], head)

    def test_real_line_ends_in_facts_of_a_body_make_it_a_letter_that_no_handler_gets(self):
        text = "e\r\nX-Injected: yes\r\n\r\n"
        for field in ("id", "type", "subject"):
            with self.subTest(field):
                facts = {"id": f"evt_{field}", "type": "a", "subject": "s", field: text}
                event_id = self.office.stored(json.dumps(facts).encode(), source="json", headers={})
                letter = self.office.get(f"/v1/events/{event_id}")
                self.assertEqual((letter["state"], letter["class"]), ("dead", "invalid"))
                self.assertIn("control characters", letter["message"])
        self.assertFalse([head for head, _ in self.handler.requests if b"evt_id" in head or b"\r\nX-Injected" in head])
        self.assertFalse([line for line in self.office.log().splitlines() if line.lstrip().startswith("X-Injected")])

    def test_letters_that_some_take_for_line_ends_are_encoded_for_the_handler(self):
        text = "e\u560d\u560aX-Injected: yes"  # cut to their low bytes: CR and LF
        body = json.dumps({"id": text, "type": text, "subject": text}).encode()
        self.office.stored(body, source="json", headers={})
        head = self.head_at_the_handler(body)
        self.assertTrue(all(line.isascii() for line in head), head)
        self.assertFalse([line for line in head if line.startswith("X-Injected")], head)
        for name, want in (("Dlo-Event-Key", text), ("Dlo-Kind", text), ("Idempotency-Key", "json:" + text)):
            self.assertEqual([urllib.parse.unquote(line.partition(": ")[2]) for line in head if line.startswith(name)], [want])

    def test_headers_of_the_sender_cannot_change_the_frame_of_the_handlers_request(self):
        body = event("evt_frame")
        self.office.stored(body, source="stripe", headers={"Stripe-Signature": stripe_header(body), "TE": "trailers", "Trailer": "X",
                                                           "Upgrade": "h2c",
                                                           "Connection": "Upgrade, Dlo-Event-Key", "Dlo-Event-Key": "forged",
                                                           "Proxy-Connection": "close"})
        head = self.head_at_the_handler(body)
        names = [line.partition(":")[0].lower() for line in head[1:]]
        self.assertEqual([names.count(name) for name in ("content-length", "transfer-encoding", "host", "dlo-event-key")], [1, 0, 1, 1])
        self.assertFalse({"te", "trailer", "upgrade", "proxy-connection"} & set(names), names)
        self.assertIn("Dlo-Event-Key: evt_frame", head)

    def test_a_target_whose_address_holds_a_line_end_stops_the_start(self):
        for url in (r"http://127.0.0.1:1/a\r\nX-Injected: yes", r"http://127.0.0.1:1/a\nb", r"http://127.0.0.1:1/a\u0000b",
                    "http://127.0.0.1:1/a b"):
            with self.subTest(url):
                office = Office(self.handler)
                self.addCleanup(office.close)
                office.write_config((office.folder / "dlo.toml").read_text().replace(f"http://127.0.0.1:{self.handler.port}/webhooks", url))
                self.assertEqual(office.launch().process.wait(60), 1)
                self.assertIn("control character", office.log())


if __name__ == "__main__":
    unittest.main()
