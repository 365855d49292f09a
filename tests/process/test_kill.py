"""kill -9 at random moments under load, and at named moments: nothing acknowledged is lost, nothing is applied twice."""

import os
import random
import threading
import time
import unittest

from office import Handler, Lost, Office, event, wait_for

ROUNDS = int(os.environ.get("DLO_KILL_ROUNDS", "20"))


class Load:
    """Senders that record what was acknowledged; an unanswered delivery is sent again after the restart, as a provider does."""

    def __init__(self, office, tag, subjects=10):
        self.office, self.tag, self.subjects = office, tag, subjects
        self.lock = threading.Lock()
        self.acked = {}     # key -> id
        self.unanswered = []
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(4)]
        for t in self.threads:
            t.start()

    def run(self, worker):
        n = 0
        while not self.stop.is_set():
            key = f"evt_{self.tag}_{worker}_{n}"
            n += 1
            body = event(key, subject=f"sub_{worker}_{n % self.subjects}")
            try:
                status, answer = self.office.send(body)
            except OSError:
                with self.lock:
                    self.unanswered.append((key, body))
                time.sleep(0.005)
                continue
            if status == 200:
                with self.lock:
                    self.acked[key] = answer["id"]

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join()


class Kill(unittest.TestCase):
    def test_random_kills_under_load(self):
        seed = int(os.environ.get("DLO_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}")
        rng = random.Random(seed)
        handler = Handler()
        handler.default = lambda n, h: (503, {}, b"") if rng.random() < 0.1 else None
        office = Office(handler, target='retry = ["20ms","20ms","20ms","20ms","20ms","20ms","20ms","20ms","20ms","20ms"]')
        # Each kill makes retries of all that ran: with the budget they would come for minutes.
        office.configure("[[target]]", "retry_budget_percent = 0", "retry_budget_min = 0")
        try:
            acked = {}
            for number in range(ROUNDS):
                office.start()
                load = Load(office, f"{number}")
                time.sleep(rng.uniform(0.05, 0.5))
                office.kill()
                load.end()
                acked.update(load.acked)
                if number % 4 == 3:  # and during recovery
                    office.launch()
                    time.sleep(rng.uniform(0.0, 0.1))
                    office.kill()
            office.start()
            self.assertGreater(len(acked), 100, "the load acknowledged too little to mean anything")
            self.check(office, handler, acked)
        finally:
            office.close()
            handler.close()

    def check(self, office, handler, acked):
        wait_for("everything is final", lambda: self.unfinished(office) == 0, 90)
        states = {}
        for key, event_id in acked.items():
            shown = office.get(f"/v1/events/{event_id}")
            self.assertEqual(shown["key"], key, "an acknowledged event is missing or is another one")
            states[shown["state"]] = states.get(shown["state"], 0) + 1
        self.assertLessEqual(set(states), {"succeeded", "dead"}, states)
        lost = [k for k, i in acked.items() if k not in handler.effects and office.state(i) == "succeeded"]
        self.assertEqual(lost, [], "succeeded without an effect")
        self.assertTrue(all(n == 1 for n in handler.effects.values()), "one effect per key")
        self.assertEqual(office.difference(), 0)
        # Order per subject: ids rise in the order in which effects were applied.
        ids = {}
        cursor = ""
        while True:
            page = office.get(f"/v1/dead-letters?state=succeeded&limit=500{cursor}")
            for item in page["items"]:
                ids[item["key"]] = (item["subject"], item["id"])
            if not page.get("next"):
                break
            cursor = f"&cursor={page['next']}"
        last = {}
        for key in handler.order:
            if key not in ids:
                continue
            subject, event_id = ids[key]
            self.assertLess(last.get(subject, 0), event_id, f"{key} of {subject} was applied out of order")
            last[subject] = event_id

    @staticmethod
    def unfinished(office):
        return sum(c["count"] for c in office.get("/v1/stats")["counts"] if c["state"] in ("waiting", "running"))

    def test_named_moments(self):
        for point in ("journal.before_write", "journal.after_write", "journal.after_sync", "index.before_commit", "index.after_commit",
                      "claim.after_commit", "dispatch.before_handler", "dispatch.after_handler", "dispatch.before_apply",
                      "apply.before_commit", "apply.after_commit"):
            for nth in (1, 3):
                with self.subTest(point=point, nth=nth):
                    self.die_at(f"{point}:{nth}")

    def die_at(self, spec):
        handler = Handler()
        office = Office(handler)
        try:
            office.launch(DLO_CRASH_AT=spec)
            try:
                wait_for("the server answers", office.ready, 30)
            except AssertionError:
                pass  # it died while starting, as it should at some of these
            acked, sent = {}, []
            for i in range(40):
                body = event(f"evt_{i}", subject=f"sub_{i % 3}")
                sent.append(body)
                try:
                    status, answer = office.send(body)
                except OSError:
                    break
                if status == 200:
                    acked[f"evt_{i}"] = answer["id"]
            wait_for(f"the server dies at {spec}", lambda: office.process.poll() is not None, 30)
            self.assertEqual(office.process.returncode, -9)
            office.start()
            for body in sent:  # the provider sends again what had no answer; and what had one, to be hostile
                self.assertEqual(office.send(body)[0], 200)
            self.check(office, handler, acked)
        finally:
            office.close()
            handler.close()

    def test_a_handler_that_kills_the_server_three_times_is_parked_as_crashed(self):
        handler = Handler()
        office = Office(handler)
        answered = threading.Event()  # the handler may be called before the sender has its answer

        def kill(n, headers):
            answered.wait(20)
            office.kill()
            return 200, {}, b""

        handler.script["evt_killer"] = kill
        try:
            office.start()
            event_id = office.stored(event("evt_killer"))
            answered.set()
            for n in range(3):
                wait_for("the server died", lambda: office.process.poll() is not None)
                office.start()
            letter = office.wait_state(event_id, "dead")
            self.assertEqual((letter["class"], letter["attempts"]), ("crashed", 3))
            self.assertEqual(len(handler.calls_of("evt_killer")), 3)
        finally:
            office.close()
            handler.close()


class Stop(unittest.TestCase):
    def test_sigterm_under_load_ends_within_25_s_and_loses_nothing(self):
        handler = Handler()
        handler.delay = 0.05
        office = Office(handler).start()
        try:
            load = Load(office, "term")
            wait_for("load", lambda: len(load.acked) > 50)
            begin = time.monotonic()
            office.term()
            self.assertEqual(office.process.wait(30), 0)
            self.assertLess(time.monotonic() - begin, 25)
            load.end()
            office.start()
            wait_for("everything is final", lambda: Kill.unfinished(office) == 0, 60)
            for key, event_id in load.acked.items():
                self.assertEqual(office.get(f"/v1/events/{event_id}")["key"], key)
            self.assertTrue(all(n == 1 for n in handler.effects.values()))
            self.assertEqual(office.difference(), 0)
        finally:
            office.close()
            handler.close()

    def test_sigterm_while_a_handler_hangs_hands_the_event_back_uncounted(self):
        handler = Handler()
        release = threading.Event()
        handler.script["evt_hang"] = lambda n, h: (release.wait(60), None)[1] if n == 1 else None
        office = Office(handler, target='timeout = "120s"').start()
        try:
            event_id = office.stored(event("evt_hang"))
            wait_for("the handler runs", lambda: handler.calls_of("evt_hang"))
            begin = time.monotonic()
            office.term()
            self.assertEqual(office.process.wait(30), 0)
            self.assertLess(time.monotonic() - begin, 25)
            release.set()
            office.start()
            shown = office.wait_state(event_id, "succeeded")
            self.assertEqual(shown["attempts"], 1)
        finally:
            release.set()
            office.close()
            handler.close()

    def test_two_servers_on_one_store_are_refused(self):
        office = Office().start()
        try:
            second = Office(folder=office.folder)
            second.write_config((office.folder / "dlo.toml").read_text().replace(str(office.port), str(second.port)))
            second.launch()
            self.assertNotEqual(second.process.wait(20), 0)
            self.assertIn("locked", office.log())
            self.assertEqual(office.request("GET", "/readyz", token=None)[0], 200)
        finally:
            office.close()

    def test_a_lost_index_is_rebuilt_from_the_journal_and_said_so(self):
        handler = Handler()
        office = Office(handler).start()
        try:
            ids = [office.stored(event(f"evt_{i}")) for i in range(20)]
            for i in ids:
                office.wait_state(i, "succeeded")
            office.stop()
            for suffix in ("", "-wal", "-shm"):
                (office.folder / "data" / f"dlo.db{suffix}").unlink(missing_ok=True)
            office.start()
            self.assertIn("waiting again", office.log())
            for i in ids:
                self.assertEqual(office.wait_state(i, "succeeded")["key"], f"evt_{i - ids[0]}")
            self.assertEqual(set(handler.effects.values()), {1})
        finally:
            office.close()
            handler.close()


if __name__ == "__main__":
    unittest.main()
