"""The chain of the audit log, its heads outside, and `dlo verify` beside a running server and on what was changed."""

import hashlib
import http.server
import json
import sqlite3
import struct
import threading
import unittest

import standardwebhooks

from office import Handler, Lost, Office, event, wait_for

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


def chain_of(database):
    """Every record's hash, computed from docs/formats.md alone."""
    db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    previous, hashes = bytes(32), []
    for seq, at, event_id, body, *texts in db.execute(
            "SELECT seq, at, event_id, body_sha256, actor, role, action, reason, details FROM audit ORDER BY seq"):
        data = b"dlo audit 1\n" + previous + struct.pack("<qqq", seq, at, event_id)
        for text in [*(t.encode() for t in texts), body or b""]:
            data += struct.pack("<q", len(text)) + text
        previous = hashlib.sha256(data).digest()
        hashes.append(previous.hex())
    return hashes


class Receiver:
    """Where heads are posted; refuses the first `refuse` of them."""

    def __init__(self, refuse=0):
        self.heads, self.refused = [], 0
        receiver = self

        class Request(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.refused < refuse:
                    receiver.refused += 1
                    self.send_response(503)
                else:
                    standardwebhooks.Webhook(SECRET).verify(body, dict(self.headers.items()))
                    receiver.heads.append(json.loads(body))
                    self.send_response(204)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Request)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Evidence(unittest.TestCase):
    def setUp(self):
        self.handler = Handler()
        self.handler.default = Lost.always(422, {}, b"no such plan")
        self.receiver = Receiver(refuse=1)
        self.office = Office(self.handler)
        self.heads = self.office.folder / "kept" / "heads"
        self.database = self.office.folder / "data" / "dlo.db"
        config = (self.office.folder / "dlo.toml").read_text()
        self.office.write_config(f'{config}[evidence]\nhead_file = "{self.heads}"\nevery = "1s"\nallow_private = true\n'
                                 f'head_url = "http://127.0.0.1:{self.receiver.port}/"\nsigning_secret = "{SECRET}"\n')
        self.office.start()

    def tearDown(self):
        self.office.close()
        self.handler.close()
        self.receiver.close()

    def verify(self, *args):
        code, out, err = self.office.cli("verify", "--config", self.office.folder / "dlo.toml", "--json", *args)
        self.assertIn(code, (0, 1), err)
        report = json.loads(out)
        self.assertEqual(code == 0, report["sound"])
        return report

    def acts(self, n=3):
        ids = []
        for i in range(n):
            ids.append(self.office.stored(event(f"evt_{i}", subject=f"sub_{i}")))
            self.office.wait_state(ids[-1], "dead")
            self.office.post(f"/v1/dead-letters/{ids[-1]}/hold", {"link": "https://t/1", "reason": "Grüße, \"why\""})
        return ids

    def kept(self):
        return [json.loads(line) for line in self.heads.read_text().splitlines()] if self.heads.exists() else []

    def test_heads_go_out_verify_agrees_and_finds_what_was_changed(self):
        self.acts()
        head = self.office.get("/v1/audit/head")
        self.assertEqual(head["seq"], 3)
        self.assertEqual(chain_of(self.database)[-1], head["hash"])
        wait_for("the head is in the file", lambda: any(h["seq"] == 3 for h in self.kept()))
        wait_for("the head is posted", lambda: any(h["seq"] == 3 for h in self.receiver.heads))
        self.assertEqual(self.receiver.refused, 1)  # and tried again
        self.assertIn("dlo_audit_head_seq 3", self.office.request("GET", "/metrics")[2].decode())
        report = self.verify("--heads", self.heads)  # beside the running server
        self.assertEqual([s["damaged"] for s in report["steps"]], [0] * len(report["steps"]), report)
        code, out, _ = self.office.cli("audit", "head")
        self.assertEqual(code, 0)
        self.assertIn(head["hash"], out)
        code, out, _ = self.office.cli("audit", "list", "--actor", "bootstrap", "--action", "hold", "--since", "1h")
        self.assertEqual((code, out.count("hold")), (0, 3))

        # Killed, opened again and changed by somebody who can write to the file.
        self.office.kill()
        report = self.verify()
        self.assertTrue(report["sound"], report)
        self.office.start()
        self.assertEqual(self.office.get("/v1/audit/head")["hash"], head["hash"])
        self.office.stop()
        db = sqlite3.connect(self.database)
        db.executescript("DROP TRIGGER audit_no_update; UPDATE audit SET reason = 'nobody asked' WHERE seq = 2")
        db.close()
        report = self.verify()
        self.assertEqual(report["first"]["seq"], 2)
        self.assertIn("audit record 2", report["first"]["what"])
        code, out, _ = self.office.cli("verify", "--config", self.office.folder / "dlo.toml")
        self.assertEqual(code, 1)
        self.assertIn("DAMAGED audit record 2", out)

    def test_a_log_begun_anew_is_found_by_the_kept_heads(self):
        self.acts()
        wait_for("the head is kept", lambda: any(h["seq"] == 3 for h in self.kept()))
        self.office.stop()
        for name in ("dlo.db", "dlo.db-wal", "dlo.db-shm"):
            (self.database.parent / name).unlink(missing_ok=True)
        self.office.start()  # rebuilt from the journal: the log is empty
        report = self.verify()
        self.assertFalse(report["sound"])
        self.assertIn("it is gone", report["first"]["what"])

    def test_two_acts_at_once_and_a_kill_leave_one_unbroken_chain(self):
        ids = self.acts(6)
        path = "/v1/dead-letters/{}/{}"

        def act(event_id):
            for name in ("release", "hold", "release", "hold"):
                try:
                    self.office.post(path.format(event_id, name), {"link": "https://t/1", "reason": "r"})
                except (OSError, AssertionError):
                    return

        threads = [threading.Thread(target=act, args=(i,)) for i in ids]
        for thread in threads:
            thread.start()
        threads[0].join()
        self.office.kill()
        for thread in threads:
            thread.join()
        self.office.start()
        self.assertTrue(self.verify()["sound"])
        self.assertEqual(chain_of(self.database)[-1], self.office.get("/v1/audit/head")["hash"])


if __name__ == "__main__":
    unittest.main()
