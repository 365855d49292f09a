"""Bulk replays over the real binary: beside live traffic, against targets that are down, slow or half broken, and steered by two people."""

import json
import threading
import time
import unittest

from office import ADMIN, Handler, Lost, Office, event, wait_for

# Ten causes of failure: numbers alone would not make two.
WORDS = ("gold", "silver", "bronze", "copper", "iron", "tin", "lead", "zinc", "nickel", "cobalt")


class Replays(unittest.TestCase):
    def setUp(self):
        self.handler = Handler()
        self.offices = []
        self.broken = True
        self.handler.default = self.answer

    def tearDown(self):
        for office in self.offices:
            office.close()
        self.handler.close()

    def office(self, **kw):
        office = Office(self.handler, **kw).start()
        self.offices.append(office)
        return office

    def answer(self, n, headers):
        if self.broken and headers["Dlo-Kind"] != "live.kind":
            return (422, {"Dlo-Reason": f"no plan {WORDS[int(headers['Dlo-Event-Key'].split('_')[1]) % 10]}"}, b"")
        return None

    def dead(self, office, count, subjects=50):
        """Letters by several senders at once; no source may look broken as a whole."""
        ids, lock = {}, threading.Lock()

        def send(worker):
            for i in range(worker, count, 4):
                key = f"evt_{i}"
                event_id = office.stored(event(key, subject=f"sub_{i % subjects}"))
                with lock:
                    ids[key] = event_id
                if i % 3 == 0:
                    office.stored(event(f"live_{i}", kind="live.kind", subject=f"live_{i}"))
        threads = [threading.Thread(target=send, args=(w,)) for w in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wait_for("all are dead letters", lambda: office.get("/v1/dead-letters/count?state=dead")["count"] == count, 120)
        return ids

    @staticmethod
    def progress(office, replay):
        p = office.get(f"/v1/replays/{replay}")
        assert p["queued"] + p["running"] + p["committed"] + p["dead_again"] + p["skipped"] == p["count"], p
        return p

    def wait_replay(self, office, replay, state, seconds=120):
        wait_for(f"replay {replay} is {state}, is {self.progress(office, replay)}", lambda: self.progress(office, replay)["state"] == state, seconds)
        return self.progress(office, replay)

    def test_5000_letters_beside_live_traffic_in_order_once_each(self):
        office = self.office(target='retry = []\nconcurrency = 16')
        ids = self.dead(office, 5000, subjects=100)
        self.broken = False
        before = len(self.handler.order)
        made = office.post("/v1/replays", {"filter": {}, "canary": 3, "batch_size": 1000, "stagger_ms": 0, "reason": "fixed"})
        self.assertEqual(made["count"], 5000)
        live, stop = [], threading.Event()

        def send():
            while not stop.is_set():
                key = f"during_{len(live)}"
                live.append(office.stored(event(key, kind="live.kind", subject=key)))
                time.sleep(0.005)
        sender = threading.Thread(target=send)
        sender.start()
        p = self.wait_replay(office, made["id"], "done", 240)
        stop.set()
        sender.join()
        self.assertEqual((p["committed"], p["dead_again"], p["skipped"], p["remaining"]), (5000, 0, 0, 0))
        for event_id in live:
            office.wait_state(event_id, "succeeded")
        self.assertTrue(all(n == 1 for n in self.handler.effects.values()), "one effect per key")
        last = {}
        for key in self.handler.order[before:]:
            if key in ids:
                subject = int(key.split("_")[1]) % 100
                self.assertLess(last.get(subject, 0), ids[key], f"{key} was applied out of order")
                last[subject] = ids[key]
        self.assertEqual(office.difference(), 0)

    def test_v5_of_one_subscription_parked_out_of_order_while_others_go_on(self):
        office = self.office(target='retry = []')
        ids = [office.stored(event(f"evt_{i}", subject="sub_1")) for i in (2, 0, 1)]
        for i in reversed(ids):
            office.wait_state(i, "dead")
        self.broken = False
        made = office.post("/v1/replays", {"filter": {"subject": ["sub_1"]}, "canary": 2, "rate": 20, "reason": "fixed"})
        office.wait_state(office.stored(event("evt_9", subject="sub_2")), "succeeded")
        self.wait_replay(office, made["id"], "done")
        self.assertEqual([k for k in self.handler.order if k != "evt_9"], ["evt_2", "evt_0", "evt_1"], "by receipt")

    def test_the_canary_fails_and_the_rest_stays_until_a_person_decides(self):
        office = self.office(target='retry = []')
        ids = self.dead(office, 40)
        made = office.post("/v1/replays", {"filter": {}, "canary": 1, "batch_size": 100, "stagger_ms": 0, "reason": "perhaps"})
        p = self.wait_replay(office, made["id"], "stopped")
        self.assertEqual((p["dead_again"], p["requeued"], p["word_of"]), (10, 10, "system"))
        self.assertIn("10 of 10 of the canary are dead again", p["word"])
        audit = office.get("/v1/audit")["items"][0]
        self.assertEqual((audit["action"], audit["actor"]), ("replay_stop", "system"))
        self.assertIn("replay_stopped", office.log())
        code, out, err = office.cli("replays", "items", made["id"], "--result", "dead_again")
        self.assertEqual((code, out.count("permanent")), (0, 10), out + err)
        self.broken = False
        code, out, err = office.cli("replays", "resume", made["id"], "--reason", "now it is fixed")
        self.assertEqual(code, 0, out + err)
        p = self.wait_replay(office, made["id"], "done")
        self.assertEqual((p["committed"], p["dead_again"]), (30, 10))
        self.assertEqual(len(self.handler.effects), 30 + sum(i % 3 == 0 for i in range(40)))
        self.assertEqual(len(ids), 40)

    def test_it_stops_itself_when_most_of_what_ends_is_dead_again(self):
        office = self.office(target='retry = []\nconcurrency = 2')
        self.dead(office, 100)
        made = office.post("/v1/replays", {"filter": {}, "batch_size": 5, "stagger_ms": 0, "reason": "hope"})
        p = self.wait_replay(office, made["id"], "stopped")
        self.assertGreaterEqual(p["dead_again"], 20)
        self.assertLess(p["requeued"], 60)
        p = office.post(f"/v1/replays/{made['id']}/cancel", {"reason": "not today"})
        self.assertEqual((p["state"], p["word"]), ("cancelled", "not today"))
        wait_for("all are letters again", lambda: office.get("/v1/dead-letters/count?state=dead")["count"] == 100)
        skipped = office.get(f"/v1/replays/{made['id']}/items?result=skipped&limit=500")["items"]
        self.assertEqual({(i["state"], i["reason"]) for i in skipped}, {("ended", "cancelled")})
        self.assertEqual(len(skipped), self.progress(office, made["id"])["skipped"])
        self.assertEqual(office.difference(), 0)

    def test_a_target_that_is_down_costs_a_replay_time_and_not_letters(self):
        office = self.office(target='retry = ["20ms","20ms","20ms","20ms","20ms"]\nbreaker_failures = 5\nbreaker_open = "200ms"\nbreaker_open_max = "300ms"\nretry_budget_percent = 0\nretry_budget_min = 0')
        self.dead(office, 60)
        self.broken = False
        down = {"on": True}
        self.handler.default = lambda n, h: (503, {}, b"") if down["on"] and h["Dlo-Replay"] == "true" else None
        made = office.post("/v1/replays", {"filter": {}, "batch_size": 60, "stagger_ms": 0, "reason": "fixed"})
        wait_for("the breaker opens", lambda: "breaker_opened" in office.log())
        time.sleep(0.5)
        p = self.progress(office, made["id"])
        self.assertLess(p["requeued"], 30, "nothing is handed over while the breaker is open")
        self.assertEqual((p["committed"], p["dead_again"]), (0, 0))
        down["on"] = False
        p = self.wait_replay(office, made["id"], "done")
        self.assertEqual((p["committed"], p["dead_again"]), (60, 0))

    def test_a_half_broken_target_ends_with_each_letter_in_its_place(self):
        office = self.office(target='retry = []')
        self.dead(office, 90)
        self.handler.default = lambda n, h: (422, {"Dlo-Reason": "still no plan"}, b"") if h["Dlo-Event-Key"].startswith("evt_") and int(h["Dlo-Event-Key"].split("_")[1]) % 3 == 0 else None
        made = office.post("/v1/replays", {"filter": {}, "batch_size": 30, "stagger_ms": 10, "stop_percent": 90, "reason": "partly fixed"})
        p = self.wait_replay(office, made["id"], "done")
        self.assertEqual((p["committed"], p["dead_again"], p["parked"]), (60, 30, 30))
        self.assertEqual(office.get("/v1/dead-letters/count?state=dead")["count"], 30)

    def test_a_slow_target_has_few_at_a_time(self):
        office = self.office(target='retry = []\nconcurrency = 4')
        self.dead(office, 40)
        self.broken = False
        self.handler.delay = 0.1
        made = office.post("/v1/replays", {"filter": {}, "batch_size": 1000, "stagger_ms": 0, "reason": "fixed"})
        most = 0
        while True:
            p = self.progress(office, made["id"])
            most = max(most, p["requeued"] - p["committed"])
            if p["state"] == "done":
                break
            time.sleep(0.02)
        self.assertEqual(p["committed"], 40)
        self.assertLessEqual(most, 16, "its window follows what it can do")

    def test_two_operators_at_once(self):
        office = self.office(target='retry = []')
        ids = self.dead(office, 200)
        self.broken = False
        answers = []

        def act(path, body):
            status, _, answer = office.request("POST", path, body)
            answers.append((status, json.loads(answer)))
        both = [threading.Thread(target=act, args=("/v1/replays", {"filter": {}, "rate": 20, "reason": f"person {n}"})) for n in range(2)]
        for t in both:
            t.start()
        for t in both:
            t.join()
        self.assertEqual(sum(a["count"] for _, a in answers), 200, "each letter is in one of them")
        self.assertEqual([s for s, _ in answers], [202, 202])
        replay = max(answers, key=lambda a: a[1]["count"])[1]["id"]
        answers.clear()
        both = [threading.Thread(target=act, args=(f"/v1/replays/{replay}/pause", {"reason": f"person {n}"})) for n in range(2)]
        for t in both:
            t.start()
        for t in both:
            t.join()
        self.assertEqual(sorted(s for s, _ in answers), [200, 409])
        self.assertEqual({a["code"] for s, a in answers if s == 409}, {"replay_not_running"})
        last = max(ids.values())
        status, _, answer = office.request("POST", f"/v1/dead-letters/{last}/replay", {"reason": "one of it"})
        self.assertEqual((status, json.loads(answer)["code"]), (409, "in_replay"))
        self.assertEqual(office.post("/v1/replays", {"filter": {}, "dry_run": True})["would_requeue"], 0)
        before = len([a for a in office.get("/v1/audit?limit=500")["items"] if a["action"] == "replay_cancel"])
        answers.clear()
        both = [threading.Thread(target=act, args=(f"/v1/replays/{replay}/{act_}", {"reason": act_})) for act_ in ("cancel", "cancel")]
        for t in both:
            t.start()
        for t in both:
            t.join()
        self.assertEqual(sorted(s for s, _ in answers), [200, 409])
        after = len([a for a in office.get("/v1/audit?limit=500")["items"] if a["action"] == "replay_cancel"])
        self.assertEqual(after - before, 1, "one act, one record")

    def test_a_viewer_may_look_and_not_steer(self):
        office = self.office(target='retry = []')
        self.dead(office, 3)
        code, out, err = office.cli("token", "create", "vera", "--role", "viewer")
        self.assertEqual(code, 0, err)
        token = out.strip().split()[-1]
        made = office.post("/v1/replays", {"filter": {}, "rate": 0.1, "reason": "slowly"})
        self.assertEqual(office.request("GET", f"/v1/replays/{made['id']}/items", token=token)[0], 200)
        for act in ("pause", "resume", "cancel"):
            self.assertEqual(office.request("POST", f"/v1/replays/{made['id']}/{act}", {}, token=token)[0], 403)
            self.assertEqual(office.request("POST", f"/v1/replays/{made['id']}/{act}", {}, token=None)[0], 401)

    def test_suppressed_notifications_are_counted_with_the_replay_and_in_a_metric(self):
        sources = '[[source]]\nname = "stripe"\nscheme = "stripe"\nsecrets = ["env:STRIPE_SECRET"]\ntarget = "billing"\nnotify_within = "1s"\n'
        office = self.office(sources=sources, target='retry = []')
        self.dead(office, 4)
        self.broken = False
        time.sleep(1.1)
        made = office.post("/v1/replays", {"filter": {}, "stagger_ms": 0, "reason": "fixed"})
        p = self.wait_replay(office, made["id"], "done")
        self.assertEqual(p["notifications_suppressed"], 4)
        self.assertEqual(self.handler.headers_seen["evt_1"]["Dlo-Suppress-Notifications"], "true")
        self.assertIn('dlo_notifications_suppressed_total{source="stripe"} 4', office.request("GET", "/metrics")[2].decode())


if __name__ == "__main__":
    unittest.main()
