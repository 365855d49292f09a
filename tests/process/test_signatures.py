"""Who may put events in: signatures are over the bytes as sent and the time they name, secrets are real ones, and a rotation
never opens a gap."""

import json
import time
import unittest

from office import SECRET, Handler, Office, event, hmac_hex, stripe_header, wait_for
from raw_http import Raw, request

GITHUB_SECRET = "github-secret-0123456789"
SOURCES = f'''
[[source]]
name = "stripe"
scheme = "stripe"
secrets = ["env:STRIPE_SECRET"]
target = "billing"
[[source]]
name = "github"
scheme = "github"
secrets = ["{GITHUB_SECRET}"]
target = "billing"
'''
OLD, NEW = "whsec_the_old_secret_0123456789", "whsec_the_new_secret_0123456789"


def github_signature(body):
    return hmac_hex(GITHUB_SECRET, body)


class Signatures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.handler = Handler()
        cls.office = Office(cls.handler, SOURCES).start()

    @classmethod
    def tearDownClass(cls):
        cls.office.close()
        cls.handler.close()

    def receipts(self):
        return self.office.get("/v1/stats")["accounting"]["receipts"]

    def deliver(self, source, body, lines):
        """Sends these header lines, so that one name can come twice; returns the status."""
        with Raw(self.office.port) as raw:
            raw.send(request("POST", f"/in/{source}", body, [*lines, "Connection: close"]))
            return raw.answers()[0].status

    def assert_rejected(self, source, rows):
        before = self.receipts()
        for name, (body, lines) in rows.items():
            with self.subTest(name, source=source):
                self.assertEqual(self.deliver(source, body, lines), 401, name)
        self.assertEqual(self.receipts(), before, "something was stored")

    def test_no_signature_an_empty_one_one_of_another_length_or_two_values_are_refused(self):
        body = b'{"action":"purchased"}'
        good = github_signature(body)
        other = github_signature(b"other")

        def line(value):
            return f"X-Hub-Signature-256: {value}"
        self.assert_rejected("github", {
            "none": (body, []), "empty": (body, [line("")]), "blank": (body, [line("   ")]), "prefix only": (body, [line("sha256=")]),
            "no prefix": (body, [line(good)]), "prefix in capitals": (body, [line("SHA256=" + good)]),
            "of another hash": (body, [line("sha1=" + good[:40])]),
            "one digit short": (body, [line("sha256=" + good[:-1])]), "one byte short": (body, [line("sha256=" + good[:-2])]),
            "one byte long": (body, [line("sha256=" + good + "00")]), "first half only": (body, [line("sha256=" + good[:32])]),
            "twice in one value": (body, [line(f"sha256={good},sha256={good}")]), "no hex": (body, [line("sha256=" + good[:-1] + "g")]),
            "of another body": (body, [line("sha256=" + other)]),
            "first digit wrong": (body, [line(f"sha256={(int(good[0], 16) ^ 1):x}{good[1:]}")]),
            "last digit wrong": (body, [line(f"sha256={good[:-1]}{(int(good[-1], 16) ^ 1):x}")]),
            "two values, good first": (body, [line("sha256=" + good), line("sha256=" + other)]),
            "two values, good last": (body, [line("sha256=" + other), line("sha256=" + good)]),
            "two equal values": (body, [line("sha256=" + good), line("sha256=" + good)]),
            "an empty value beside it": (body, [line("sha256=" + good), line("")]),
            "two values in two spellings": (body, [line("sha256=" + good), "x-hub-signature-256: sha256=" + other])})
        body = event("evt_refused")
        now = int(time.time())
        good = hmac_hex(SECRET, f"{now}.".encode() + body)
        self.assert_rejected("stripe", {
            "none": (body, []), "empty": (body, ["Stripe-Signature: "]), "no v1": (body, [f"Stripe-Signature: t={now}"]),
            "empty v1": (body, [f"Stripe-Signature: t={now},v1="]), "no time": (body, [f"Stripe-Signature: v1={good}"]),
            "v1 in capitals": (body, [f"Stripe-Signature: t={now},V1={good}"]), "v0": (body, [f"Stripe-Signature: t={now},v0={good}"]),
            "one byte short": (body, [f"Stripe-Signature: t={now},v1={good[:-2]}"]),
            "two times": (body, [f"Stripe-Signature: t={now},t={now},v1={good}"]),
            "two headers": (body, [f"Stripe-Signature: t={now},v1={good}"] * 2),
            "in another header": (body, [f"X-Stripe-Signature: t={now},v1={good}"])})

    def test_hex_in_either_case_is_the_same_signature(self):
        for number, change in enumerate((str.lower, str.upper, str.swapcase)):
            body = json.dumps({"action": "purchased", "number": number}).encode()
            signature = github_signature(body)
            mixed = change("".join(c.upper() if i % 2 else c for i, c in enumerate(signature)))
            self.assertEqual(self.deliver("github", body, [f"x-hub-SIGNATURE-256: sha256={mixed}", f"X-GitHub-Delivery: case-{number}"]),
                             200, mixed)

    def test_the_time_is_part_of_what_is_signed(self):
        body = event("evt_time")
        now = int(time.time())
        captured = stripe_header(body, timestamp=now - 400)
        signature = captured.partition(",v1=")[2]
        before = self.receipts()
        for header in (captured, f"t={now},v1={signature}", f"t={now},t={now - 400},v1={signature}",
                       f"t={now - 400},t={now},v1={signature}",
                       f"t={now}.{now - 400},v1={signature}"):
            with self.subTest(header):
                self.assertEqual(self.office.send(body, headers={"Stripe-Signature": header})[0], 401)
        # A time in another header is nobody's business.
        self.assertEqual(self.office.send(body, headers={"Stripe-Signature": captured, "Stripe-Timestamp": str(now), "Date": str(now)})[0],
                         401)
        self.assertEqual(self.receipts(), before)

    def test_signed_more_than_300_s_ago_or_30_s_ahead_is_refused(self):
        # Far enough from the bounds for any machine; the bounds to the second are Verify.ToleranceIsTwoSidedAndInclusive.
        for age, status in ((250, 200), (301, 401), (3600, 401), (-90, 401), (-3600, 401), (0, 200)):
            with self.subTest(age):
                body = event(f"evt_age_{age}")
                header = stripe_header(body, timestamp=int(time.time()) - age)
                self.assertEqual(self.office.send(body, headers={"Stripe-Signature": header})[0], status)

    def test_a_captured_delivery_sent_again_within_its_time_is_a_duplicate_with_one_effect(self):
        body = event("evt_captured")
        headers = {"Stripe-Signature": stripe_header(body)}
        status, first = self.office.send(body, headers=headers)
        self.assertEqual((status, first["status"]), (200, "stored"))
        for _ in range(3):
            self.assertEqual(self.office.send(body, headers=headers), (200, {"status": "duplicate", "id": first["id"]}))
        self.office.wait_state(first["id"], "succeeded")
        self.assertEqual(len(self.handler.calls_of("evt_captured")), 1)
        self.assertEqual(self.office.get(f"/v1/events/{first['id']}")["deliveries"], 4)

    def test_the_signature_is_over_the_bytes_as_sent(self):
        odd = b'\r\n{ "id" :"evt_odd",\t"type":"invoice.paid" , "amount":1.50, "amount2":1e2,"name":"M\\u00fcller \\/ \xc3\xbc",\n "id":"evt_odd" }\n'
        header = stripe_header(odd)
        tidied = [json.dumps(json.loads(odd)).encode(), json.dumps(json.loads(odd), separators=(",", ":")).encode(), odd.strip(),
                  odd + b"\n",
                  odd.replace(b"\r\n", b"\n"), odd.replace(b"\\u00fc", b"\xc3\xbc"), odd.replace(b"1.50", b"1.5")]
        before = self.receipts()
        for body in tidied:
            self.assertNotEqual(body, odd)
            self.assertEqual(self.office.send(body, headers={"Stripe-Signature": header})[0], 401, body)
        self.assertEqual(self.receipts(), before)
        status, answer = self.office.send(odd, headers={"Stripe-Signature": header})
        self.assertEqual(status, 200, answer)
        self.assertEqual(self.office.request("GET", f"/v1/events/{answer['id']}/payload")[2], odd)
        self.office.wait_state(answer["id"], "succeeded")
        self.assertEqual(self.handler.bodies["evt_odd"], odd)

    def test_what_a_body_says_changes_nothing_before_its_signature_is_right(self):
        """Bodies that would become letters of class invalid, conflicts or duplicates, were they looked at."""
        known = event("evt_known")
        self.office.stored(known)
        before = self.receipts()
        for body in (b"", b"not json", b"[" * 100_000, b'{"id":' * 10_000, b'{"id": 1e999}', b"\xff\xfe", b'{"id":"\\ud800"}', known,
                     event("evt_known", other=1)):
            for headers in ({}, {"Stripe-Signature": stripe_header(b"another body")}):
                self.assertEqual(self.office.send(body, headers=headers), (401, {"status": "rejected"}), body[:40])
        self.assertEqual(self.receipts(), before)


class Secrets(unittest.TestCase):
    def office(self, secrets, more="", **env):
        office = Office(None, f'[[source]]\nname = "stripe"\nscheme = "stripe"\nsecrets = {secrets}\ntarget = "billing"\n', target=more,
                        env=env)
        self.addCleanup(office.close)
        return office

    def assert_no_start(self, office, *hints, unsaid=()):
        office.launch()
        wait_for("the start is over", lambda: office.process.poll() is not None or "dlo serves" in office.log(), 60)
        self.assertEqual(office.process.poll(), 1, office.log())
        for hint in hints:
            self.assertIn(hint, office.log())
        for text in unsaid:
            self.assertNotIn(text, office.log())

    def test_an_empty_blank_or_short_secret_stops_the_start(self):
        rows = {"empty": ("env", ""), "blank": ("env", " " * 40), "tabs": ("env", "\t" * 40), "short": ("env", "whsec_456789abc"),
                "short within blanks": ("env", "whsec_4567" + " " * 30), "blank file": ("file", " \n" * 20), "empty file": ("file", ""),
                "blank text": ("text", " " * 40), "blank behind a good one": ("second", " " * 40)}
        for name, (place, value) in rows.items():
            with self.subTest(name):
                office = self.office('["env:PLACED"]', PLACED=value)
                (office.folder / "secret").write_text(value + "\n")
                listed = {"env": ["env:PLACED"], "file": [f"file:{office.folder}/secret"], "text": [value], "second": [SECRET, "env:PLACED"]}[place]
                office.write_config((office.folder / "dlo.toml").read_text().replace('["env:PLACED"]', json.dumps(listed)))
                self.assert_no_start(office, f"secrets[{len(listed) - 1}]", "stripe", unsaid=[value] if "whsec" in value else [])

    def test_a_secret_that_is_not_there_stops_the_start(self):
        self.assert_no_start(self.office("[]"), "at least one secret")
        self.assert_no_start(self.office('["env:NOBODY_SET_THIS"]'), "NOBODY_SET_THIS")
        self.assert_no_start(self.office('["file:/does/not/exist"]'), "/does/not/exist")

    def test_a_signing_secret_that_is_empty_blank_or_short_stops_the_start(self):
        """Else requests would go out unsigned, and nobody would know."""
        for name, spec, value in (("empty in the environment", "env:SIGN", ""), ("blank in the environment", "env:SIGN", " " * 40),
                                  ("empty", "", ""),
                                  ("short", "env:SIGN", "whsec_MTIzNDU2Nzg="), ("not set", "env:NOBODY_SET_THIS", "")):
            with self.subTest(name):
                self.assert_no_start(self.office('["env:STRIPE_SECRET"]', f'signing_secret = "{spec}"', SIGN=value), "billing")

    def test_a_short_first_administrators_token_stops_the_start(self):
        for token in ("admin", "0123456789abcde", " " * 40):
            office = self.office('["env:STRIPE_SECRET"]')
            office.env["DLO_ADMIN_TOKEN"] = token
            self.assert_no_start(office, "DLO_ADMIN_TOKEN", unsaid=["admin\n", "0123456789abcde"])

    def test_a_rotation_takes_both_secrets_until_the_old_one_is_removed(self):
        handler = Handler()
        self.addCleanup(handler.close)
        source = '[[source]]\nname = "stripe"\nscheme = "stripe"\nsecrets = {}\ntarget = "billing"\n'
        office = Office(handler, source.format(f'["{OLD}"]'))
        self.addCleanup(office.close)
        config = (office.folder / "dlo.toml").read_text()

        def restart(secrets):
            office.stop()
            office.write_config(config.replace(json.dumps([OLD]), json.dumps(secrets)))
            office.start()

        def status(key, *secrets):
            body = event(key, subject=key)
            now = int(time.time())
            signatures = ",".join("v1=" + hmac_hex(s, f"{now}.".encode() + body) for s in secrets)
            return office.send(body, headers={"Stripe-Signature": f"t={now},{signatures}"})[0]

        office.start()
        before = office.stored(event("evt_before", subject="evt_before"), secret=OLD)
        self.assertEqual([status("evt_too_early", NEW), status("evt_1", NEW, OLD)], [401, 200])

        restart([NEW, OLD])
        self.assertEqual([status("evt_2", OLD), status("evt_3", NEW), status("evt_4", OLD, NEW),
                          status("evt_5", "whsec_of_nobody_0123456789")],
                         [200, 200, 200, 401])
        self.assertIn('dlo_secret_used_total{source="stripe",secret="secrets[1]"} 1', office.request("GET", "/metrics")[2].decode())

        restart([NEW])
        self.assertEqual([status("evt_6", OLD), status("evt_7", NEW), status("evt_8", NEW, OLD)], [401, 200, 200])
        # What the old secret let in is known under the new one.
        body = office.request("GET", f"/v1/events/{before}/payload")[2]
        self.assertEqual(office.send(body, secret=NEW), (200, {"status": "duplicate", "id": before}))
        taken = {"evt_before", "evt_1", "evt_2", "evt_3", "evt_4", "evt_7", "evt_8"}
        wait_for("all that was taken took effect", lambda: set(handler.effects) >= taken)
        self.assertEqual(set(handler.effects), taken)


if __name__ == "__main__":
    unittest.main()
