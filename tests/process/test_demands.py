"""The verification that the sources ask for, over the real binary: V1-V4, order, hold, breakers, suppression."""

import time
import unittest

from office import Handler, Lost, Office, event, wait_for


class Demands(unittest.TestCase):
    def setUp(self):
        self.handler = Handler()
        self.offices = []

    def tearDown(self):
        for office in self.offices:
            office.close()
        self.handler.close()

    def office(self, **kw):
        office = Office(self.handler, **kw).start()
        self.offices.append(office)
        return office

    def test_v1_draining_commits_each_once_and_an_empty_queue_drains_to_nothing(self):
        office = self.office(target="retry = []")
        self.handler.default = Lost.always(503)
        ids = [office.stored(event(f"evt_{i}", subject=f"sub_{i}")) for i in range(5)]
        for i in ids:
            self.assertEqual(office.wait_state(i, "dead")["class"], "exhausted")
        self.handler.default = None
        self.assertEqual(self.drain(office), {"committed": 5, "requeued": 0, "parked": 0})
        self.assertEqual(self.handler.effects, {f"evt_{i}": 1 for i in range(5)})
        calls = len(self.handler.calls)
        self.assertEqual(self.drain(office), {"committed": 0, "requeued": 0, "parked": 0})
        self.assertEqual(len(self.handler.calls), calls)
        self.assertEqual({office.state(i) for i in ids}, {"replayed"})
        self.assertEqual(office.difference(), 0)

    @staticmethod
    def drain(office):
        stats = office.post("/v1/drain", {"wait": "30s"}, expect=(200,))
        return {k: stats[k] for k in ("committed", "requeued", "parked")}

    def test_v2_a_letter_that_fails_every_replay_is_parked_at_the_cap_and_leaves_the_drain(self):
        office = self.office(target='retry = []')
        self.handler.default = Lost.always(503)
        event_id = office.stored(event("evt_bad"))
        office.wait_state(event_id, "dead")
        for n in range(1, 8):
            stats = self.drain(office)
            letter = office.get(f"/v1/events/{event_id}")
            if n < 5:
                self.assertEqual((stats, letter["class"], letter["replays_failed"]), ({"committed": 0, "requeued": 1, "parked": 0}, "exhausted", n))
            elif n == 5:
                self.assertEqual((stats, letter["class"]), ({"committed": 0, "requeued": 0, "parked": 1}, "poison"))
            else:
                self.assertEqual(stats, {"committed": 0, "requeued": 0, "parked": 0})
        self.assertEqual(len(self.handler.calls_of("evt_bad")), 6)
        self.assertEqual(office.get(f"/v1/events/{event_id}")["attempts"], 1)

    def test_v3_a_timeout_consumes_the_budget_and_an_unknown_kind_is_parked_with_zero_retries(self):
        office = self.office(target='timeout = "300ms"\nconnect_timeout = "200ms"')
        self.handler.script["evt_slow"] = lambda n, h: time.sleep(0.6) or (200, {}, b"")
        self.handler.script["unknown.kind"] = Lost.always(422, {"Dlo-Reason": "unknown event kind"})
        slow = office.stored(event("evt_slow", subject="sub_slow"))
        unknown = office.stored(event("evt_unknown", kind="unknown.kind", subject="sub_unknown"))
        letter = office.wait_state(unknown, "dead")
        self.assertEqual((letter["class"], letter["attempts"], len(self.handler.calls_of("evt_unknown"))), ("permanent", 1, 1))
        self.assertIn("unknown event kind", letter["message"])
        letter = office.wait_state(slow, "dead")
        self.assertEqual((letter["class"], letter["attempts"], letter["code"]), ("exhausted", 6, "timeout"))
        self.assertEqual([a["number"] for a in letter["timeline"]], [6, 5, 4, 3, 2, 1])

    def test_v4_park_replay_twice_one_effect_also_when_it_had_been_applied_before(self):
        office = self.office(target='retry = []')
        self.handler.script["evt_a"] = Lost.first(1, 500)
        self.handler.script["evt_b"] = Lost.applied_then(500)  # a partial write: applied, then the answer said 500
        a, b = office.stored(event("evt_a", subject="a")), office.stored(event("evt_b", subject="b"))
        for i in (a, b):
            office.wait_state(i, "dead")
            self.assertEqual(office.post(f"/v1/dead-letters/{i}/replay", {"reason": "fixed"}, expect=(202,))["requeued"], 1)
            office.wait_state(i, "replayed")
            status, _, answer = office.request("POST", f"/v1/dead-letters/{i}/replay", {"reason": "again"})
            self.assertEqual(status, 409)
            self.assertIn(b"already_replayed", answer)
        self.assertEqual(self.handler.effects, {"evt_a": 1, "evt_b": 1})
        attempts = office.get(f"/v1/events/{b}/attempts")["items"]
        self.assertEqual(attempts[0]["outcome"], "already_applied")

    def test_a_replay_of_a_letter_whose_subject_is_gone_is_a_terminal_skip(self):
        office = self.office(target='retry = []')
        self.handler.script["evt_gone"] = lambda n, h: (500, {}, b"") if n == 1 else (404, {"Dlo-Reason": "not_found"}, b"")
        event_id = office.stored(event("evt_gone"))
        office.wait_state(event_id, "dead")
        office.post(f"/v1/dead-letters/{event_id}/replay", {"reason": "try"})
        office.wait_state(event_id, "replayed")
        self.assertEqual(office.get("/v1/dead-letters/count")["count"], 0)

    def test_order_is_kept_while_an_event_retries_and_other_subjects_go_on(self):
        office = self.office(target='retry = ["300ms","300ms","300ms","300ms","300ms"]')
        self.handler.script["evt_1"] = Lost.first(3, 503)
        first = office.stored(event("evt_1", subject="sub_x"))
        second = office.stored(event("evt_2", subject="sub_x"))
        other = office.stored(event("evt_3", subject="sub_y"))
        office.wait_state(other, "succeeded")
        self.assertIn(office.state(first), ("waiting", "running"))
        self.assertEqual(office.state(second), "waiting")
        office.wait_state(second, "succeeded")
        self.assertEqual([k for k in self.handler.order if k != "evt_3"], ["evt_1", "evt_2"])

    def test_v5_parked_out_of_order_replayed_by_receipt(self):
        office = self.office(target='retry = []')
        bad = {"on": True}
        self.handler.default = lambda n, h: (500, {}, b"") if bad["on"] and h["Dlo-Kind"].startswith("customer") else None
        ids = [office.stored(event(f"evt_{i}", kind="customer.subscription.updated", subject="sub_1")) for i in range(6)]
        for i in ids:
            office.wait_state(i, "dead")
        other = office.stored(event("evt_other", subject="sub_2"))
        office.wait_state(other, "succeeded")
        bad["on"] = False
        plan = office.post("/v1/replays", {"filter": {"type": ["customer.subscription.updated"]}, "dry_run": True, "reason": "r"})
        self.assertEqual((plan["would_requeue"], plan["over_cap"]), (6, False))
        made = office.post("/v1/replays", {"filter": {"type": ["customer.subscription.updated"]}, "batch_size": 2, "stagger_ms": 50, "reason": "fixed"})
        self.assertEqual(made["count"], 6)
        wait_for("the replay ends", lambda: office.get(f"/v1/replays/{made['id']}")["state"] == "done")
        progress = office.get(f"/v1/replays/{made['id']}")
        self.assertEqual((progress["committed"], progress["dead_again"], progress["remaining"]), (6, 0, 0))
        self.assertEqual([k for k in self.handler.order if k != "evt_other"], [f"evt_{i}" for i in range(6)])

    def test_hold_keeps_followers_behind_a_parked_event_until_it_is_resolved(self):
        sources = '[[source]]\nname = "stripe"\nscheme = "stripe"\nsecrets = ["env:STRIPE_SECRET"]\ntarget = "billing"\non_park = "hold"\n'
        office = self.office(sources=sources)
        self.handler.script["evt_1"] = Lost.always(400)
        first = office.stored(event("evt_1", subject="sub_h"))
        office.wait_state(first, "dead")
        second, third = office.stored(event("evt_2", subject="sub_h")), office.stored(event("evt_3", subject="sub_h"))
        free = office.stored(event("evt_4", subject="sub_free"))
        office.wait_state(free, "succeeded")
        self.assertEqual((office.state(second), office.state(third)), ("waiting", "waiting"))
        self.assertEqual(office.get(f"/v1/events/{first}")["events_behind"], 2)
        office.post(f"/v1/dead-letters/{first}/resolve", {"code": "handled_manually", "reason": "entered by hand"})
        office.wait_state(third, "succeeded")
        self.assertEqual(self.handler.order[-2:], ["evt_2", "evt_3"])

    def test_an_outage_spends_no_budget_while_the_breaker_is_open(self):
        office = self.office(target='retry = ["50ms","50ms","50ms","50ms","50ms"]\nconcurrency = 1')
        self.handler.default = Lost.always(503)
        ids = [office.stored(event(f"evt_{i}", subject=f"sub_{i}")) for i in range(12)]
        wait_for("the breaker opens", lambda: 'dlo_breaker_state{target="billing"} 2' in office.request("GET", "/metrics")[2].decode())
        spent = len(self.handler.calls)
        time.sleep(1)
        self.assertLessEqual(len(self.handler.calls), spent + 1)
        self.assertTrue(all(office.state(i) in ("waiting", "running") for i in ids))

    def test_one_contract_change_stops_the_source_instead_of_dead_lettering_the_stream(self):
        office = self.office()
        self.handler.default = lambda n, h: (422, {"Dlo-Reason": "schema mismatch: unknown field v2"}, b"") if h["Dlo-Replay"] == "false" else None
        for i in range(120):
            office.stored(event(f"evt_{i}", subject=f"sub_{i}"))
        wait_for("the source is paused", lambda: office.get("/v1/sources")["items"][0]["paused"])
        time.sleep(0.5)
        dead = office.get("/v1/dead-letters/count")["count"]
        self.assertGreaterEqual(dead, 50)
        self.assertLess(dead, 80)
        self.assertEqual(office.send(event("evt_late"))[0], 200)  # receiving goes on
        self.assertIn('dlo_source_paused{source="stripe"} 1', office.request("GET", "/metrics")[2].decode())
        self.handler.default = None
        code, out, err = office.cli("source", "resume", "stripe", "--reason", "handler fixed")
        self.assertEqual(code, 0, out + err)
        wait_for("the rest is handled", lambda: len(self.handler.effects) == 121 - dead)
        self.assertEqual(office.difference(), 0)

    def test_hold_release_resolve_reopen_are_audited_with_who_and_why(self):
        office = self.office(target='retry = []')
        self.handler.default = Lost.always(400)
        event_id = office.stored(event("evt_triage"))
        office.wait_state(event_id, "dead")
        path = f"/v1/dead-letters/{event_id}"
        held = office.post(f"{path}/hold", {"link": "https://tracker/1", "owner": "ana", "reason": "schema fix"})
        self.assertEqual((held["state"], held["hold_link"], held["hold_owner"]), ("held", "https://tracker/1", "ana"))
        self.assertEqual(office.post(f"{path}/release", {"reason": "done"})["state"], "dead")
        self.assertEqual(office.post(f"{path}/resolve", {"code": "entity_deleted", "reason": "customer left"})["resolve_code"], "entity_deleted")
        self.assertEqual(office.post(f"{path}/reopen", {"reason": "came back"})["state"], "dead")
        actions = [a["action"] for a in office.get(f"/v1/events/{event_id}/audit")["items"]]
        self.assertEqual(actions, ["reopen", "resolve", "release", "hold"])
        status, _, answer = office.request("POST", f"{path}/release", {"reason": "not held"})
        self.assertEqual(status, 409, answer)
        self.assertEqual(office.request("POST", f"{path}/resolve", {"code": "because", "reason": "x"})[0], 400)


if __name__ == "__main__":
    unittest.main()
