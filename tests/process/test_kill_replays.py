"""kill -9 while a replay is planned, tries its canary and runs: each frozen letter ends once, none is repeated or lost."""

import os
import random
import threading
import time
import unittest

from office import Handler, Office, event, wait_for

ROUNDS = int(os.environ.get("DLO_KILL_ROUNDS", "20"))
LETTERS, SUBJECTS = 60, 9
WORDS = ("gold", "silver", "bronze", "copper", "iron", "tin", "lead")
PHASES = ("plan", "canary", "run", "any")


class KillReplays(unittest.TestCase):
    def test_random_kills_during_plan_canary_and_run(self):
        seed = int(os.environ.get("DLO_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}")
        self.rng = random.Random(seed)
        self.broken = False
        self.found = {}  # in which states restarts found the replay
        self.handler = Handler()
        self.handler.default = self.answer
        self.office = Office(self.handler, target='retry = ["20ms","20ms","20ms","20ms","20ms","20ms","20ms","20ms"]')
        # Each kill makes retries of all that ran: with the budget they would come for minutes.
        self.office.configure("[[target]]", "retry_budget_percent = 0", "retry_budget_min = 0")
        try:
            for number in range(ROUNDS):
                with self.subTest(round=number, seed=seed):
                    self.round(number)
            print(f"found after the kill: {self.found}")
            self.assertEqual(self.office.difference(), 0)
            self.assertEqual(set(self.handler.effects.values()), {1}, "one effect per key")
        finally:
            self.office.close()
            self.handler.close()

    def answer(self, n, headers):
        if headers["Dlo-Kind"] == "live.kind":
            return None
        if self.broken:
            return (422, {"Dlo-Reason": f"no plan {WORDS[int(headers['Dlo-Event-Key'].split('_')[2]) % len(WORDS)]}"}, b"")
        time.sleep(self.rng.uniform(0, 0.01))
        what = self.rng.random()
        if what < 0.05:
            return (503, {}, b"")  # nothing happened
        if what < 0.10:
            return (503, {}, b"", True)  # it was applied, and the answer is lost
        return None

    def round(self, number):
        office, phase = self.office, PHASES[number % len(PHASES)]
        if not office.process or office.process.poll() is not None:
            office.start()
        self.broken = True
        ids = {}
        for i in range(LETTERS):
            # So many others that no source is taken for broken as a whole.
            if i % 3 == 0:
                office.stored(event(f"evt_{number}_{1000 + i}", kind="live.kind", subject=f"live_{i}"))
            ids[office.stored(event(f"evt_{number}_{i}", subject=f"sub_{number}_{i % SUBJECTS}"))] = f"evt_{number}_{i}"
        wait_for("all are dead letters", lambda: office.get("/v1/dead-letters/count?state=dead")["count"] == LETTERS, 60)
        self.broken = False
        answer = {}

        def ask():
            try:
                answer.update(office.post("/v1/replays", {"filter": {}, "canary": 2, "rate": 200, "stop_percent": 100, "reason": "fixed"}))
            except (OSError, ValueError):
                pass  # it died before it answered

        asker = threading.Thread(target=ask)
        asker.start()
        self.wait_until(phase)
        office.kill()
        asker.join()
        for _ in range(self.rng.randrange(2)):  # and while it goes on after a restart
            office.start()
            time.sleep(self.rng.uniform(0, 0.15))
            office.kill()
        office.start()
        replay = answer.get("id") or self.newest(number)
        state = office.get(f"/v1/replays/{replay}")["state"] if replay else "none"
        self.found[state] = self.found.get(state, 0) + 1
        if replay is None:
            self.assertEqual(office.get("/v1/dead-letters/count?state=dead")["count"], LETTERS, "what was not answered may not be half done")
            answer.clear()
            ask()
            replay = answer["id"]
        wait_for("the replay ends", lambda: office.get(f"/v1/replays/{replay}")["state"] == "done", 90)
        self.check(replay, ids)

    def wait_until(self, phase):
        office = self.office
        if phase == "plan":
            time.sleep(self.rng.uniform(0, 0.02))
        elif phase == "any":
            time.sleep(self.rng.uniform(0, 0.4))
        else:
            state = {"canary": "canary", "run": "running"}[phase]

            def there():
                newest = office.get("/v1/replays?limit=1")["items"]
                return newest and newest[0]["state"] in (state, "done")
            wait_for(f"the replay is {state}", there)
            time.sleep(self.rng.uniform(0, 0.05 if phase == "canary" else 0.25))

    def newest(self, number):
        """The replay of this round, if it came into being without an answer."""
        items = [r for r in self.office.get("/v1/replays?limit=500")["items"]]
        self.assertFalse([r for r in items if r["state"] == "plan"], "a plan outlived the restart")
        return items[0]["id"] if len(items) > number else None

    def check(self, replay, ids):
        progress = self.office.get(f"/v1/replays/{replay}")
        self.assertEqual((progress["count"], progress["remaining"], progress["queued"], progress["running"]), (LETTERS, 0, 0, 0))
        self.assertEqual(progress["committed"] + progress["dead_again"] + progress["skipped"], LETTERS)
        items = self.office.get(f"/v1/replays/{replay}/items?limit=500")["items"]
        self.assertEqual([i["id"] for i in items], sorted(ids), "each frozen letter once, by receipt")
        for item in items:
            state = self.office.state(item["id"])
            self.assertEqual(item["state"], "ended")
            self.assertIn((item["result"], state), (("committed", "replayed"), ("already_applied", "replayed"), ("dead_again", "dead")))
            if state == "replayed":
                self.assertEqual(self.handler.effects.get(ids[item["id"]]), 1, "replayed, and its effect once")
        counted = {r: sum(i["result"] == r for i in items) for r in ("committed", "already_applied", "dead_again")}
        self.assertEqual(progress["committed"], counted["committed"] + counted["already_applied"])
        self.assertEqual((progress["already_applied"], progress["dead_again"]), (counted["already_applied"], counted["dead_again"]))
        # Receipt order per subject, in the order in which effects were applied.
        number_of = {key: event_id for event_id, key in ids.items()}
        last = {}
        for key in self.handler.order:
            if key in number_of:
                subject = int(key.split("_")[2]) % SUBJECTS
                self.assertLess(last.get(subject, 0), number_of[key], f"{key} was applied out of order")
                last[subject] = number_of[key]
        # What three crashes or a spent budget parked again is no business of the next round.
        for item in items:
            if item["result"] == "dead_again":
                self.office.post(f"/v1/dead-letters/{item['id']}/resolve", {"code": "other", "reason": "parked by the kills"})


if __name__ == "__main__":
    unittest.main()
