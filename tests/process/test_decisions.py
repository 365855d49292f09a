"""Decisions that last, over the real binary: bulk acts and kills, standing rules, notes, corrected payloads."""

import json
import os
import random
import threading
import time
import unittest
import urllib.parse

from office import Handler, Lost, Office, event, wait_for

ROUNDS = int(os.environ.get("DLO_DECISION_ROUNDS", "10"))
HOLD = {"link": "https://issues.example/1"}


class Decisions(unittest.TestCase):
    def setUp(self):
        self.handler = Handler()
        self.offices = []

    def tearDown(self):
        for office in self.offices:
            office.close()
        self.handler.close()

    def office(self, **kw):
        office = Office(self.handler, **kw)
        # What is dead on purpose must not stop the source.
        self.offices.append(office)
        return office.start()

    def dead(self, office, count, prefix="evt", kind="invoice.paid"):
        """Letters that are dead at receipt (same key, other content): quick to make, and no handler is asked."""
        office.stored(event(f"{prefix}_first", kind=kind))
        ids = []

        def send(worker):
            for n in range(worker, count, 4):
                status, answer = office.send(event(f"{prefix}_first", kind=kind, amount_paid=n))
                assert status == 200, (status, answer)
        threads = [threading.Thread(target=send, args=(w,)) for w in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wait_for("all are dead", lambda: self.count(office, "state=dead") >= count)
        cursor = ""
        while True:
            page = office.get(f"/v1/dead-letters?state=dead&limit=500{cursor}")
            ids += [item["id"] for item in page["items"]]
            if not page["next"]:
                return sorted(ids)
            cursor = f"&cursor={page['next']}"

    @staticmethod
    def count(office, query):
        return office.get(f"/v1/dead-letters/count?{query}")["count"]

    @staticmethod
    def audit(office):
        """Every record, newest first."""
        records, before = [], ""
        while True:
            page = office.get(f"/v1/audit?limit=500{before}")
            records += page["items"]
            if not page.get("next"):
                return records
            before = f"&cursor={page['next']}"

    def test_a_bulk_resolve_killed_at_any_moment_goes_on_and_changes_no_letter_twice(self):
        seed = int(os.environ.get("DLO_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}")
        rng = random.Random(seed)
        office = self.office()
        ids = self.dead(office, 1200)
        interrupted = 0
        for number in range(ROUNDS):
            act = "resolve" if number % 2 == 0 else "reopen"
            body = {"filter": {"source": "stripe"}, "reason": f"round {number}", "force": True}
            if act == "resolve":
                body["code"] = "duplicate"
            answered = {}

            def ask():
                try:
                    answered["it"] = office.post(f"/v1/dead-letters/{act}", body, timeout=20)
                except (OSError, AssertionError, ValueError):
                    pass
            asker = threading.Thread(target=ask)
            asker.start()
            time.sleep(rng.uniform(0.0, 0.35))
            office.kill()
            asker.join()
            office.start()
            # Killed before the freeze was on the disk, nobody was answered and nothing of it is left: asked again.
            decisions = office.get("/v1/decisions")["items"]
            made = [d for d in decisions if d["reason"] == f"round {number}"]
            if not made:
                self.assertNotIn("it", answered)
                answered["it"] = office.post(f"/v1/dead-letters/{act}", body, timeout=20)
                made = [answered["it"]]
            elif made[0]["state"] == "running":
                interrupted += 1
            decision = wait_for("the decision is done", lambda: self.done(office, made[0]["id"]), 60)
            self.assertEqual((decision["count"], decision["changed"], decision["skipped"]), (len(ids), len(ids), 0))
        records = self.audit(office)
        for number in range(ROUNDS):
            of_round = [r for r in records if r["reason"] == f"round {number}"]
            self.assertEqual(sorted(r["event_id"] for r in of_round if r["event_id"]), ids, f"round {number}: each letter once")
            self.assertEqual(sum(1 for r in of_round if not r["event_id"]), 1, "one record of the whole")
        print(f"{interrupted} of {ROUNDS} were interrupted in the middle")
        self.assertEqual(office.difference(), 0)

    @staticmethod
    def done(office, decision_id):
        decision = office.get(f"/v1/decisions/{decision_id}")
        return decision if decision["state"] == "done" else None

    def test_senders_do_not_wait_for_a_large_decision(self):
        office = self.office()
        ids = self.dead(office, 3000)
        slowest, sent = [0.0], [0]
        stop = threading.Event()

        def send():
            n = 0
            while not stop.is_set():
                begin = time.monotonic()
                self.assertEqual(office.send(event(f"evt_live_{n}"))[0], 200)
                slowest[0] = max(slowest[0], time.monotonic() - begin)
                n += 1
                sent[0] = n
        sender = threading.Thread(target=send)
        sender.start()
        wait_for("it sends", lambda: sent[0] > 0)
        begin, before = time.monotonic(), sent[0]
        made = office.post("/v1/dead-letters/resolve", {"filter": {"class": "conflict"}, "code": "duplicate", "reason": "x"})
        wait_for("it is done", lambda: self.done(office, made["id"]), 60)
        took, alive = time.monotonic() - begin, sent[0] > before
        stop.set()
        sender.join()
        print(f"{len(ids)} letters in {took:.2f} s, slowest answer to a sender {slowest[0] * 1000:.0f} ms")
        self.assertTrue(alive, "no sender had its answer while the decision ran")

    def test_what_a_bulk_act_refuses(self):
        office = self.office()
        self.dead(office, 3)
        rows = [
            ("hold", {}, 400, "bad_field"),                                     # no filter
            ("hold", {"filter": {}, **HOLD}, 400, "filter_empty"),
            ("hold", {"filter": {"class": "conflict"}}, 400, "link_missing"),
            ("hold", {"filter": {"clas": "conflict"}, **HOLD}, 400, "bad_filter"),
            ("hold", {"filter": {"class": "conflict"}, "max": 2, **HOLD}, 409, "too_many"),
            ("hold", {"filter": {"class": "conflict"}, "max": 0, **HOLD}, 400, "bad_max"),
            ("hold", {"filter": [], **HOLD}, 400, "bad_field"),
            ("resolve", {"filter": {"class": "conflict"}}, 400, "bad_field"),   # no code
            ("resolve", {"filter": {"class": "conflict"}, "code": "other"}, 400, "reason_missing"),
            ("release", {"filter": {"state": "dead"}}, 400, "state_not_fit"),
            ("reopen", {"filter": {"class": "conflict"}, "surprise": 1}, 400, "unknown_field"),
        ]
        for act, body, status, code in rows:
            with self.subTest(act=act, body=body):
                got, _, answer = office.request("POST", f"/v1/dead-letters/{act}", body)
                self.assertEqual((got, json.loads(answer)["code"]), (status, code))
        for body in (b"", b"{", b"[]", b'{"filter":' * 1000, b"\xff\xfe"):
            self.assertEqual(office.request("POST", "/v1/dead-letters/hold", body, headers={"Content-Type": "application/json"})[0], 400)
        self.assertEqual(self.count(office, "state=dead"), 3)
        plan = office.post("/v1/dead-letters/hold", {"filter": {}, "all": True, "max": 2, "dry_run": True, **HOLD})
        self.assertEqual((plan["would_change"], plan["over_cap"], plan["by_class"]), (3, True, {"conflict": 3}))

    def test_the_command_line_shows_the_number_and_asks(self):
        office = self.office()
        self.dead(office, 3)
        code, out, err = office.cli("hold", "--class", "conflict", "--link", "https://issues.example/1")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("--yes", err)
        code, out, _ = office.cli("resolve", "--class", "conflict", "--code", "duplicate", "--reason", "r", "--dry-run")
        self.assertEqual(code, 0)
        self.assertIn("Would resolve 3 letters", out)
        code, out, err = office.cli("hold", "--class", "conflict", "--link", "https://issues.example/1", "--until", "1d", "--yes")
        self.assertEqual(code, 0, err)
        self.assertIn("3 of 3 letters changed", out)
        self.assertEqual(office.cli("release", "--all", "--yes")[0], 0)
        self.assertEqual(self.count(office, "state=dead"), 3)
        self.assertIn("hold", office.cli("decisions")[1])

    def test_a_standing_rule_takes_what_dies_and_not_what_a_person_reopened(self):
        office = self.office()
        self.handler.script["invoice.gone"] = Lost.always(422, {"Dlo-Reason": "no_such_customer"})
        code, out, err = office.cli("rules", "add", "gone", "--type", "invoice.gone", "--code", "entity_deleted", "--expires", "30d", "--reason", "known")
        self.assertEqual(code, 0, err)
        ids = [office.stored(event(f"evt_{n}", kind="invoice.gone", subject=f"sub_{n}")) for n in range(3)]
        for event_id in ids:
            self.assertEqual(office.wait_state(event_id, "resolved")["resolve_code"], "entity_deleted")
        self.assertEqual(office.get(f"/v1/events/{ids[0]}/audit")["items"][0]["actor"], "rule:gone")
        office.cli("reopen", ids[0])
        office.kill()
        office.start()
        last = office.stored(event("evt_last", kind="invoice.gone", subject="sub_last"))
        office.wait_state(last, "resolved")
        self.assertEqual(office.state(ids[0]), "dead")
        rule = office.get("/v1/rules")["items"][0]
        self.assertEqual((rule["hits"], rule["state"]), (4, "live"))
        self.assertIn('dlo_rule_hits_total{rule="gone"} 1', office.request("GET", "/metrics")[2].decode())
        self.assertEqual(office.cli("rules", "end", rule["id"])[0], 0)
        for body, code in (({"name": "a", "filter": {}, "code": "other", "reason": "x", "expires_at": "2099-01-01"}, "rule_matches_all"),
                           ({"name": "a", "filter": {"source": "stripe"}, "code": "other", "reason": "x"}, "rule_matches_all"),
                           ({"name": "a", "filter": {"q": " "}, "code": "other", "reason": "x"}, "rule_matches_all"),
                           ({"name": "a", "filter": {"type": "x"}, "code": "other", "reason": "x"}, "bad_expiry"),
                           ({"name": "a", "filter": {"type": "x"}, "code": "other", "reason": "x", "expires_at": "2099-01-01"}, "bad_expiry"),
                           ({"name": "a", "filter": {"type": "x"}, "code": "other"}, "reason_missing"),
                           ({"name": "A b", "filter": {"type": "x"}, "code": "other", "reason": "x"}, "bad_rule"),
                           ({"name": "a", "filter": {"type": "x", "ids": [1]}, "code": "other", "reason": "x"}, "bad_rule"),
                           ({"name": "a", "filter": {"type": "x"}, "reason": "x"}, "link_missing")):
            with self.subTest(code=code, body=body):
                status, _, answer = office.request("POST", "/v1/rules", body)
                self.assertEqual((status, json.loads(answer)["code"]), (400, code))

    def test_a_corrected_payload_is_sent_under_the_same_key_and_applied_once(self):
        office = self.office()
        # A handler that cannot read the amount, and honours the event key.
        self.handler.default = lambda n, h: None if b'"amount_paid": 42' in self.handler.bodies[h["Dlo-Event-Key"]] else (422, {}, b"no amount")
        original = event("evt_1", amount_paid="forty-two")
        event_id = office.stored(original)
        office.wait_state(event_id, "dead")
        self.assertNotIn("Dlo-Revision", self.handler.headers_seen["evt_1"])
        (office.folder / "fixed.json").write_bytes(original.replace(b'"forty-two"', b"42"))
        code, out, err = office.cli("revise", event_id, office.folder / "fixed.json", "--reason", "BILL-9", "--after", 0)
        self.assertEqual(code, 0, err)
        code, out, _ = office.cli("revisions", event_id, "--diff", 1)
        self.assertEqual(out.split(), ["/data/object/amount_paid", "-", '"forty-two"', "+", "42"])
        self.assertEqual(office.cli("revise", event_id, office.folder / "fixed.json", "--reason", "again", "--after", 0)[0], 1)
        for _ in range(2):
            office.request("POST", f"/v1/dead-letters/{event_id}/replay", {"reason": "corrected"})
        shown = office.wait_state(event_id, "replayed")
        seen = self.handler.headers_seen["evt_1"]
        self.assertEqual((seen["Dlo-Revision"], seen["Dlo-Signature-Verified"], seen["Idempotency-Key"]), ("1", "revised", "stripe:evt_1"))
        self.assertEqual(self.handler.bodies["evt_1"], original.replace(b'"forty-two"', b"42"))
        self.assertEqual(self.handler.effects, {"evt_1": 1})
        self.assertEqual([a["revision"] for a in shown["timeline"]], [1, 0])
        self.assertEqual(office.request("GET", f"/v1/events/{event_id}/payload")[2], original)
        self.assertEqual(office.request("GET", f"/v1/events/{event_id}/revisions/0/payload")[2], original)
        self.assertIn("revision 1", office.cli("show", event_id)[1])

    def test_a_withdrawn_correction_and_hostile_ones(self):
        office = self.office()
        self.handler.default = Lost.always(422)
        event_id = office.stored(event("evt_1"))
        office.wait_state(event_id, "dead")
        path = f"/v1/events/{event_id}/revisions"

        def revise(body, query="reason=x", **kw):
            status, _, answer = office.request("POST", f"{path}?{query}", body, **kw)
            answer = json.loads(answer)
            return status, answer.get("code") or answer.get("number")
        self.assertEqual(revise(b"", "reason=x"), (400, "revision_empty"))
        self.assertEqual(revise(b"x", ""), (400, "reason_missing"))
        self.assertEqual(revise(b"x", "reason=" + "y" * 1001), (400, "reason_too_long"))
        self.assertEqual(revise(b"x", "reason=x&surprise=1"), (400, "unknown_word"))
        self.assertEqual(revise(b"x", "reason=x&reason=y"), (400, "bad_query"))
        self.assertEqual(revise(b"x" * (1 << 20) + b"x"), (413, "body_too_large"))
        self.assertEqual(revise(None, "reason=x&original=true"), (409, "no_revision"))
        self.assertEqual(revise(b"\x00\xff" * 500_000), (201, 1))
        self.assertEqual(revise(b"x", token=None), (401, "unauthorized"))
        status, headers, body = office.request("GET", f"{path}/1/payload")
        self.assertEqual((status, headers["Content-Type"], body), (200, "application/octet-stream", b"\x00\xff" * 500_000))
        self.assertEqual(office.get(f"{path}/1/diff")["kind"], "binary")
        self.assertEqual(office.cli("revise", event_id, "--original", "--reason", "mistaken")[0], 0)
        office.post(f"/v1/dead-letters/{event_id}/replay", {})
        wait_for("it was sent again", lambda: len(self.handler.calls_of("evt_1")) == 2)
        self.assertNotIn("Dlo-Revision", self.handler.headers_seen["evt_1"])
        self.assertEqual(self.handler.bodies["evt_1"], office.request("GET", f"/v1/events/{event_id}/payload")[2])
        self.assertEqual(office.request("GET", f"{path}/99999999999/payload")[0], 404)

    def test_notes_and_what_a_new_handler_version_has_not_judged(self):
        office = self.office()
        self.handler.default = Lost.always(422, {"Dlo-Handler-Version": "7"})
        event_id = office.stored(event("evt_1"))
        letter = office.wait_state(event_id, "dead")
        self.assertEqual(office.cli("note", event_id, "asked the customer")[0], 0)
        self.assertEqual(office.cli("note", "--group", letter["fingerprint"], "known: BILL-9")[0], 0)
        self.assertIn("asked the customer", office.cli("show", event_id)[1])
        self.assertIn("BILL-9", office.cli("groups")[1])
        group = f"/v1/groups/{letter['fingerprint']}/notes"
        for path, body, status, code in ((f"/v1/events/{event_id}/notes", {"text": "x" * 4001}, 400, "note_too_long"),
                                         (f"/v1/events/{event_id}/notes", {"text": " \n"}, 400, "note_empty"),
                                         (f"/v1/events/{event_id}/notes", {"text": 7}, 400, "bad_field"),
                                         ("/v1/events/999/notes", {"text": "x"}, 404, "not_found"),
                                         ("/v1/groups/0123456789abcdef/notes", {"text": "x"}, 404, "no_such_group"),
                                         ("/v1/groups/" + urllib.parse.quote("' OR 1") + "/notes", {"text": "x"}, 404, "no_such_group")):
            with self.subTest(path=path):
                got, _, answer = office.request("POST", path, body)
                self.assertEqual((got, json.loads(answer)["code"]), (status, code))
        self.assertEqual(office.post(f"/v1/events/{event_id}/notes", {"text": "é" * 4000}, expect=(201,))["text"], "é" * 4000)
        self.assertEqual([n["text"] for n in office.get(group)["items"]], ["known: BILL-9"])

        held = office.stored(event("evt_2", subject="sub_2"))
        office.wait_state(held, "dead")
        office.post(f"/v1/dead-letters/{held}/hold", {"wake_on_handler": "8", **HOLD})
        self.assertEqual(self.count(office, "overdue=true"), 0)
        self.handler.default = lambda n, h: (200, {"Dlo-Handler-Version": "8"}, b"")
        office.wait_state(office.stored(event("evt_3", subject="sub_3")), "succeeded")
        self.assertEqual(self.count(office, "not_judged_by=8"), 2)
        self.assertEqual([l["id"] for l in office.get("/v1/dead-letters?overdue=true")["items"]], [held])
        self.assertIn('dlo_holds_overdue{source="stripe"} 1', office.request("GET", "/metrics")[2].decode())
        group = office.get("/v1/dead-letters/groups")["items"][0]
        self.assertEqual((group["handler_version"], group["not_judged"], group["ready"]), ("8", 2, 1))
        self.assertIn("8: 2", office.cli("groups")[1])
        self.assertEqual(office.cli("list", "--not-judged-by", "8", "--overdue", "--json")[0], 0)
        self.assertEqual(office.state(held), "held")


if __name__ == "__main__":
    unittest.main()
