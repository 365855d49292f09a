"""Retention and archive with the real binary: prune, legal holds, export, damage, and kill -9 at random and named moments."""

import json
import os
import pathlib
import random
import subprocess
import threading
import time
import unittest

from office import BINARY, Handler, Lost, Office, event, wait_for

ROUNDS = int(os.environ.get("DLO_KILL_ROUNDS", "20" if BINARY.endswith("build/release/dlo") else "6"))  # a sanitizer is slow
SECONDS = 1 / 86400  # in days


class ArchiveCase(unittest.TestCase):
    def office(self, retention="", **kw):
        self.handler = Handler()
        self.handler.script["bad.kind"] = Lost.always(422)
        office = Office(self.handler, target="concurrency = 32", **kw)
        office.write_config((office.folder / "dlo.toml").read_text() + f"\n[retention]\n{retention}\n")
        self.addCleanup(self.handler.close)
        self.addCleanup(office.close)
        return office

    def fill(self, office, n, bad_every=0, tag="evt"):
        """Events that succeed, and some that become letters; returns {key: (id, body)}."""
        sent = {}
        for i in range(n):
            key = f"{tag}_{i}"
            bad = bad_every and i % bad_every == 0
            # Of many kinds, or the systemic breaker would stop the source.
            body = event(key, kind=f"bad.kind.{i}" if bad else "invoice.paid", subject=f"sub_{key}", account=f"acct_{i}", fill="x" * 400)
            if bad:
                self.handler.script[f"bad.kind.{i}"] = Lost.always(422, {"Dlo-Reason": f"no_plan_{i}"})
            sent[key] = (office.stored(body), body)
        wait_for("everything ended", lambda: self.open(office) == 0)
        return sent

    @staticmethod
    def open(office):
        stats = office.get("/v1/stats")
        return stats["waiting"] + stats["running"]

    @staticmethod
    def prune(office, succeeded="infinity", dead="infinity", expect=(200,)):
        return office.post("/v1/prune", {"succeeded_older_than_days": succeeded, "dead_older_than_days": dead, "wait": "60s"},
                           expect=expect, timeout=90)

    def verify(self, office):
        run = subprocess.run([os.environ["DLO_BINARY"], "verify", "--config", str(office.folder / "dlo.toml"), "--json"],
                             env=office.env, capture_output=True, text=True, cwd=office.folder, timeout=120)
        return run.returncode, json.loads(run.stdout) if run.stdout else run.stderr

    def check_all_there(self, office, sent):
        for key, (event_id, body) in sent.items():
            shown = office.get(f"/v1/events/{event_id}")
            self.assertEqual(shown["key"], key)
            status, _, payload = office.request("GET", f"/v1/events/{event_id}/payload")
            self.assertEqual((status, payload), (200, body), key)
        self.assertEqual(office.difference(), 0)
        code, report = self.verify(office)
        self.assertEqual((code, report["problems"]), (0, []))


class Prune(ArchiveCase):
    def test_pruned_events_are_read_from_the_archive_and_known_for_ever(self):
        office = self.office().start()
        sent = self.fill(office, 40, bad_every=10)
        time.sleep(1.2)
        self.assertEqual(self.prune(office)["pruned"], 0, "infinity disables")
        for days in (0, -1, "soon"):
            office.post("/v1/prune", {"succeeded_older_than_days": days}, expect=(400, 422))
        done = self.prune(office, succeeded=SECONDS)
        self.assertEqual((done["pruned"], done["letters_archived"], done["finished"]), (36, 4, True))
        self.assertEqual(office.get("/v1/dead-letters/count")["count"], 4, "no letter is ever pruned")
        self.check_all_there(office, sent)

        event_id, body = sent["evt_3"]
        shown = office.get(f"/v1/events/{event_id}")
        self.assertTrue(shown["pruned"])
        self.assertEqual((shown["state"], len(shown["timeline"])), ("succeeded", 1))
        self.assertIn("0000000001.seg.zst", shown["archived_in"])
        code, out, _ = office.cli("show", event_id)
        self.assertEqual(code, 0)
        self.assertIn("all of this is from the archive", out)
        self.assertEqual(office.send(body), (200, {"status": "duplicate", "id": event_id}))
        status, answer = office.send(event("evt_3", amount_paid=1))
        self.assertEqual((status, answer["conflict_with"]), (200, event_id))
        office.post(f"/v1/dead-letters/{event_id}/resolve", {"code": "other", "reason": "x"}, expect=(409,))

        # A letter is replayed from the archive's bytes.
        letter, _ = sent["evt_10"]
        self.handler.script.pop("bad.kind.10")
        office.post(f"/v1/dead-letters/{letter}/replay", {"reason": "fixed"})
        office.wait_state(letter, "replayed")
        self.assertEqual(self.handler.bodies["evt_10"], sent["evt_10"][1])

        office.stop()
        office.start()
        self.assertEqual(office.send(body), (200, {"status": "duplicate", "id": event_id}))
        self.check_all_there(office, sent)
        actions = [r["action"] for r in office.get("/v1/audit?limit=500")["items"]]
        for action in ("prune", "prune_end", "archive"):
            self.assertIn(action, actions)

    def test_the_archive_is_listed_shown_and_exported(self):
        office = self.office().start()
        sent = self.fill(office, 12)
        time.sleep(1.2)
        code, out, err = office.cli("prune", "--succeeded-older-than-days", f"{SECONDS:.8f}", "--yes", timeout=90)
        self.assertEqual(code, 0, err)
        self.assertIn("Pruned 12 events", out)
        code, out, _ = office.cli("archive", "ls")
        self.assertEqual(code, 0)
        self.assertIn("0000000001.seg.zst", out)
        code, out, _ = office.cli("archive", "show", sent["evt_5"][0])
        self.assertEqual(code, 0)
        tables = [json.loads(line)["table"] for line in out.splitlines()]
        self.assertEqual(tables, ["events", "receipts", "attempts"])
        target = office.folder / "out"
        code, out, err = office.cli("archive", "export", "--config", office.folder / "dlo.toml", "--to", target)
        self.assertEqual(code, 0, err)
        self.assertEqual(subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=target, capture_output=True).returncode, 0)
        self.assertIn(sent["evt_5"][1], (target / "0000000001.seg").read_bytes())
        lines = [json.loads(line) for line in (target / "0000000001.1.ndjson").read_text().splitlines()]
        self.assertEqual(sum(line["table"] == "events" for line in lines), 12)
        for name in ("0000000001.seg.zst", "0000000001.1.ndjson.zst"):
            self.assertEqual((office.folder / "data/archive" / name).stat().st_mode & 0o777, 0o444)

    def test_a_legal_hold_is_kept_and_ended_with_a_reason(self):
        office = self.office().start()
        self.fill(office, 10)
        time.sleep(1.2)
        self.assertEqual(office.cli("legal-hold", "add", "--reason", "case 7")[0], 2, "no filter")
        code, _, err = office.cli("legal-hold", "add", "--account", "acct_4", "--reason", "case 7")
        self.assertEqual(code, 0, err)
        office.post("/v1/legal-holds", {"filter": {"acount": ["x"]}, "reason": "typo"}, expect=(400, 422))
        office.post("/v1/legal-holds", {"filter": {}}, expect=(400, 422))
        done = self.prune(office, succeeded=SECONDS)
        self.assertEqual((done["pruned"], done["segments_on_legal_hold"]), (0, 1))
        self.assertIn("in force", office.cli("legal-hold", "list")[1])
        self.assertEqual(office.cli("legal-hold", "end", "1", "--reason", "case 7 is closed")[0], 0)
        self.assertEqual(office.cli("legal-hold", "end", "1", "--reason", "again")[0], 1)
        self.assertEqual(self.prune(office, succeeded=SECONDS)["pruned"], 10)

    def test_damage_is_named_and_stops_nobody_else(self):
        office = self.office().start()
        sent = self.fill(office, 10)
        time.sleep(1.2)
        self.prune(office, succeeded=SECONDS)
        more = self.fill(office, 10, tag="more")
        path = office.folder / "data/archive/0000000001.seg.zst"
        whole = path.read_bytes()
        path.chmod(0o644)
        for damage in (lambda b: b[:100] + bytes([b[100] ^ 1]) + b[101:], lambda b: b[:-50], lambda b: b""):
            path.write_bytes(damage(whole))
            code, report = self.verify(office)
            self.assertEqual(code, 1)
            self.assertIn("0000000001.seg.zst", report["problems"][0])
        path.unlink()
        self.assertIn("missing", self.verify(office)[1]["problems"][0])
        office.stop()
        office.start()
        event_id, body = sent["evt_3"]
        self.assertEqual(office.request("GET", f"/v1/events/{event_id}/payload")[0], 503)
        self.assertEqual(office.send(body), (200, {"status": "duplicate", "id": event_id}))
        self.assertEqual(office.request("GET", f"/v1/events/{more['more_3'][0]}/payload")[2], more["more_3"][1])
        path.write_bytes(whole)
        self.check_all_there(office, sent | more)

    def test_a_lost_index_is_rebuilt_from_journal_and_archive(self):
        office = self.office().start()
        sent = self.fill(office, 20, bad_every=7)
        time.sleep(1.2)
        self.prune(office, succeeded=SECONDS)
        sent |= self.fill(office, 3, tag="new")
        office.stop()
        for suffix in ("", "-wal", "-shm"):
            (office.folder / "data" / f"dlo.db{suffix}").unlink(missing_ok=True)
        calls = len(self.handler.calls)
        office.start()
        wait_for("what is in the journal is handed out again", lambda: self.open(office) == 0)
        self.assertEqual(len(self.handler.calls), calls + 3, "nothing of the archive is")
        self.assertEqual(office.get("/v1/dead-letters/count")["count"], 3)
        self.check_all_there(office, sent)
        self.assertEqual(office.send(sent["evt_3"][1])[1]["status"], "duplicate")


class Kill(ArchiveCase):
    def test_random_kills_while_events_are_archived_and_pruned(self):
        seed = int(os.environ.get("DLO_SEED", random.randrange(1 << 30)))
        print(f"seed {seed}")
        rng = random.Random(seed)
        office = self.office('succeeded = "1s"\nclosed = "1s"\ncold_after = "2s"')
        sent, lock = {}, threading.Lock()

        def send(stop, tag):
            n = 0
            while not stop.is_set():
                key = f"evt_{tag}_{n}"
                n += 1
                body = event(key, kind=f"kind.{n % 50}", subject=f"sub_{key}", fill="x" * 300)
                try:
                    status, answer = office.send(body)
                except OSError:
                    return
                if status == 200:
                    with lock:
                        sent[key] = (answer["id"], body)

        for number in range(ROUNDS):
            office.start()
            stop = threading.Event()
            senders = [threading.Thread(target=send, args=(stop, f"{number}_{t}")) for t in range(2)]
            for sender in senders:
                sender.start()
            time.sleep(rng.uniform(0.8, 2.2))
            office.kill()
            stop.set()
            for sender in senders:
                sender.join()
        office.start()
        self.assertGreater(len(sent), 200, "the load acknowledged too little to mean anything")
        wait_for("everything ended", lambda: self.open(office) == 0, 60)
        wait_for("the archive has nearly everything",
                 lambda: office.get("/v1/stats")["accounting"]["pruned"] > len(sent) * 0.9, 60)
        self.check_all_there(office, sent)
        self.assertTrue(all(n == 1 for n in self.handler.effects.values()))
        for key in rng.sample(sorted(sent), 20):
            self.assertEqual(office.send(sent[key][1]), (200, {"status": "duplicate", "id": sent[key][0]}))

    def test_named_moments(self):
        for point in ("archive.after_compress", "archive.before_copy", "archive.after_copy", "archive.after_manifest",
                      "prune.before_commit", "prune.after_commit"):
            with self.subTest(point=point):
                office = self.office()
                office.start(DLO_CRASH_AT=point)
                sent = self.fill(office, 25, bad_every=8)
                time.sleep(1.2)
                try:
                    self.prune(office, succeeded=SECONDS)
                except (OSError, AssertionError, ConnectionError):
                    pass
                wait_for("the server died", lambda: office.process.poll() is not None)
                self.assertEqual(office.process.returncode, -9)
                office.start()
                self.check_all_there(office, sent)
                self.prune(office, succeeded=SECONDS)
                self.assertEqual(office.get("/v1/stats")["accounting"]["pruned"], 21)
                self.check_all_there(office, sent)


if __name__ == "__main__":
    unittest.main()
