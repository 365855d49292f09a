"""Alerts against real receivers: Debian's Alertmanager, and an HTTP receiver that fails as told."""

import base64
import hashlib
import hmac
import http.server
import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from office import Handler, Lost, Office, event, free_port, wait_for

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
KEY = base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()

RETRY = 'retry = ["100ms"]\n'


class Receiver:
    """Keeps what it is sent; answers `script` first, then 200."""

    def __init__(self, script=()):
        self.lock = threading.Lock()
        self.calls = []  # (path, headers, body)
        self.script = list(script)
        self.hang = threading.Event()
        self.hangs = False
        receiver = self

        class Request(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with receiver.lock:
                    receiver.calls.append((self.path, dict(self.headers.items()), body))
                    status = receiver.script.pop(0) if receiver.script else 200
                if receiver.hangs:
                    receiver.hang.wait(60)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"ok")
                except OSError:
                    pass

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", 0), Request)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def bodies(self):
        with self.lock:
            return [json.loads(body) for _, _, body in self.calls]

    def close(self):
        self.hang.set()
        self.server.shutdown()
        self.server.server_close()


def alert(url, lines=""):
    return f'[[alert]]\nurl = "{url}"\nallow_private = true\nrepeat_every = "1h"\n{lines}\n'


class Alerts(unittest.TestCase):
    def setUp(self):
        self.handler = Handler()
        self.addCleanup(self.handler.close)
        self.handler.default = Lost.always(422, {"Dlo-Reason": "unsupported_kind"}, b"no handler for this kind")

    def receiver(self, script=()):
        receiver = Receiver(script)
        self.addCleanup(receiver.close)
        return receiver

    def office(self, alerts, **env):
        office = Office(self.handler, target=RETRY + alerts)
        self.addCleanup(office.close)
        return office.start(**env)

    def test_a_thousand_deaths_of_one_cause_are_one_alert_with_their_number(self):
        receiver = self.receiver()
        office = self.office(alert(receiver.url, 'arrivals_every = "5s"\non = ["arrivals"]'))
        began = time.monotonic()
        self.handler.script["fine"] = lambda n, h: (200, {}, b"")  # or the systemic breaker would stop the source
        for i in range(1000):
            office.stored(event(f"evt_{i}", subject=f"sub_{i}"))
            if i % 2:
                office.stored(event(f"fine_{i}", kind="fine", subject=f"sub_fine_{i}"))
        told = lambda: sum(b["letters"] for b in receiver.bodies() if b["status"] == "firing")
        count = lambda: office.get("/v1/dead-letters/count")["count"]
        wait_for("all are told", lambda: told() == 1000, 60)
        self.assertEqual(count(), 1000)
        passed = time.monotonic() - began
        firing = [b for b in receiver.bodies() if b["status"] == "firing"]
        self.assertLessEqual(len(firing), 2 + passed / 5)
        self.assertEqual(firing[-1]["letters_in_all"], 1000)
        self.assertEqual(len({b["name"] for b in firing}), 1)

    def test_slack_gets_text_and_a_receiver_that_fails_twice_gets_one_logical_alert(self):
        receiver = self.receiver([500, 500])
        office = self.office(alert(receiver.url, 'format = "slack"\non = ["arrivals"]\nname = "chat"'))
        office.stored(event("evt_<1>"))
        wait_for("it is taken", lambda: any(a["sent_at"] for a in office.get("/v1/alerts")["items"]), 30)
        self.assertEqual(len(receiver.calls), 3)
        self.assertEqual(len({headers["Idempotency-Key"] for _, headers, _ in receiver.calls}), 1)
        for body in receiver.bodies():
            self.assertEqual(list(body), ["text"])
            self.assertIn("1 new letter of stripe", body["text"])
        shown = office.get("/v1/alerts")["items"]
        self.assertEqual([(a["receiver"], a["status"], a["attempts"], a["answer"]) for a in shown],
                         [("chat", "firing", 3, "HTTP 200: ok")])
        metrics = office.request("GET", "/metrics", token=None)[2].decode()
        self.assertIn('dlo_alerts_sent_total{result="failed"} 2', metrics)
        self.assertIn('dlo_alerts_sent_total{result="ok"} 1', metrics)
        self.assertIn("dlo_alerts_pending 0", metrics)

    def test_json_is_signed_and_a_test_alert_shows_the_answer(self):
        receiver = self.receiver([200, 503])
        office = self.office(alert(receiver.url, f'secret = "whsec_{KEY}"\nname = "hook"'))
        code, out, err = office.cli("alerts", "test")
        self.assertEqual((code, out), (0, "hook took the test: HTTP 200: ok\n"), err)
        _, headers, body = receiver.calls[0]
        signed = f'{headers["webhook-id"]}.{headers["webhook-timestamp"]}.'.encode() + body
        mac = base64.b64encode(hmac.new(base64.b64decode(KEY), signed, hashlib.sha256).digest()).decode()
        self.assertEqual(headers["webhook-signature"], f"v1,{mac}")
        self.assertEqual(json.loads(body)["id"], headers["webhook-id"])
        code, out, _ = office.cli("alerts", "test", "hook")
        self.assertEqual((code, out), (1, "hook did not take the test: HTTP 503: ok\n"))
        self.assertEqual(office.cli("alerts", "test", "nobody")[0], 1)
        self.assertEqual([r["action"] for r in office.get("/v1/audit")["items"][:2]], ["alert_test", "alert_test"])

    def test_a_receiver_that_hangs_delays_no_other_and_no_event(self):
        slow, quick = self.receiver(), self.receiver()
        slow.hangs = True
        office = self.office(alert(slow.url, 'name = "slow"\ntimeout = "2s"') + alert(quick.url, 'name = "quick"'))
        for i in range(3):
            office.stored(event(f"evt_{i}", kind=f"kind.{i}"))
            wait_for("the quick one has it", lambda: sum(b["letters"] for b in quick.bodies()) == i + 1)
        # The quick one's last answer may still be on its way into the outbox.
        wait_for("only the slow one's wait", lambda: {a["receiver"] for a in office.get("/v1/alerts?pending=true")["items"]} == {"slow"})

    def test_a_kill_between_send_and_mark_repeats_the_alert_with_its_id(self):
        receiver = self.receiver()
        office = self.office(alert(receiver.url, 'on = ["arrivals"]'), DLO_CRASH_AT="alert.after_send")
        office.stored(event("evt_1"))
        wait_for("it died", lambda: office.process.poll() is not None, 30)
        self.assertEqual(len(receiver.calls), 1)
        office.start()
        wait_for("it is sent again", lambda: any(a["sent_at"] for a in office.get("/v1/alerts")["items"]), 30)
        ids = [body["id"] for body in receiver.bodies()]
        self.assertEqual((len(ids), len(set(ids))), (2, 1))
        self.assertEqual(office.get("/v1/alerts")["items"][0]["attempts"], 1)

    def test_outside_business_hours_it_is_a_ticket(self):
        receiver = self.receiver()
        today = time.gmtime().tm_wday  # 0 = Monday
        other = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][(today + 3) % 7]
        office = self.office(alert(receiver.url, f'business_hours = {{days = ["{other}"], from = "09:00", to = "17:00", '
                                                 'zone = "Europe/Berlin"}'))
        office.stored(event("evt_1"))
        wait_for("it is told", receiver.bodies, 10)
        self.assertEqual(receiver.bodies()[0]["severity"], "ticket")

    def test_the_probe_goes_the_whole_way_and_alerts_nobody(self):
        receiver = self.receiver()
        office = self.office(alert(receiver.url))
        code, out, err = office.cli("probe")
        self.assertEqual(code, 0, err)
        self.assertIn("The dead-letter path is alive", out)
        report = office.post("/v1/probe")
        letter = office.get(f"/v1/events/{report['event']}")
        self.assertEqual((letter["state"], letter["class"], letter["source"], letter["attempts"]),
                         ("resolved", "permanent", "dlo-probe", 1))
        for _ in range(60):  # failing on purpose stops no source
            office.post("/v1/probe")
        self.assertTrue(office.post("/v1/probe")["ok"])
        time.sleep(2)
        self.assertEqual(receiver.calls, [])
        metrics = office.request("GET", "/metrics", token=None)[2].decode()
        self.assertNotIn('dlo_dead_lettered_total{source="dlo-probe",class="permanent"', metrics)
        self.assertNotIn('dlo_dead_letters{source="dlo-probe"', metrics)
        self.assertEqual(office.request("POST", "/in/dlo-probe", b"{}", token=None)[0], 404)
        self.assertEqual([s["name"] for s in office.get("/v1/sources")["items"]], ["stripe"])
        self.assertEqual(office.difference(), 0)

    def test_diagnose_tells_a_burst_with_its_evidence_and_the_next_step(self):
        office = self.office("")
        self.assertIn("no shape: no letter yet", office.cli("diagnose")[1])
        for i in range(12):
            letter = office.stored(event(f"evt_{i}", subject=f"sub_{i}"))
        office.wait_state(letter, "dead")
        finding = wait_for("all are seen", lambda: [f for f in office.get("/v1/diagnosis")["findings"]
                                                    if f["evidence"]["letters"] == 12])[0]
        self.assertEqual((finding["shape"], finding["source"], finding["evidence"]["one_message"]),
                         ("contract_change", "stripe", 12))
        self.assertEqual(sum(finding["evidence"]["curve"]), 12)
        self.assertIn("dlo replay --fingerprint " + finding["evidence"]["fingerprint"], office.cli("diagnose")[1])
        self.assertEqual(office.request("GET", "/v1/diagnosis?since=now")[0], 400)

    def test_a_probe_is_made_when_no_letter_came(self):
        office = self.office('[probe]\nevery = "1h"\n')
        wait_for("the probe went", lambda: "probe.went_the_whole_way" in office.log(), 20)
        time.sleep(2.5)
        self.assertEqual(office.log().count("probe.went_the_whole_way"), 1)


@unittest.skipUnless(ALERTMANAGER, "prometheus-alertmanager is not installed")
class RealAlertmanager(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dlo-alertmanager-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.port = free_port()
        (self.folder / "config.yml").write_text("route:\n  receiver: none\nreceivers:\n  - name: none\n")
        with open(self.folder / "log", "wb") as log:
            process = subprocess.Popen(
                [ALERTMANAGER, f"--config.file={self.folder}/config.yml", f"--storage.path={self.folder}/data",
                 f"--web.listen-address=127.0.0.1:{self.port}", "--cluster.listen-address="],
                stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.send_signal, signal.SIGTERM)
        wait_for("Alertmanager answers", self.ready, 30)

    def ready(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    def alerts(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v2/alerts", timeout=5) as answer:
            return json.load(answer)

    def test_it_lists_our_alert_and_forgets_it_when_it_is_over(self):
        handler = Handler()
        self.addCleanup(handler.close)
        handler.default = Lost.always(422)
        office = Office(handler, target=RETRY + alert(f"http://127.0.0.1:{self.port}", 'format = "alertmanager"\ndepth_over = 0\n'
                                              'resolve_after = "1s"\non = ["depth", "arrivals"]'))
        self.addCleanup(office.close)
        office.start()
        letter = office.stored(event("evt_1"))
        wait_for("both are listed", lambda: len(self.alerts()) == 2, 20)
        listed = {a["labels"]["alertname"]: a for a in self.alerts()}
        self.assertEqual(set(listed), {"dlo_depth", "dlo_arrivals"})
        self.assertEqual(listed["dlo_arrivals"]["labels"]["source"], "stripe")
        self.assertEqual({a["labels"]["severity"] for a in listed.values()}, {"page"})
        self.assertEqual({a["status"]["state"] for a in listed.values()}, {"active"})
        office.post(f"/v1/dead-letters/{letter}/resolve", {"code": "unsupported_kind", "reason": "not ours"})
        wait_for("neither is active", lambda: not self.alerts(), 30)
        sent = office.get("/v1/alerts")["items"]
        self.assertEqual(sorted((a["rule"], a["status"]) for a in sent if a["sent_at"]),
                         [("arrivals", "firing"), ("arrivals", "resolved"), ("depth", "firing"), ("depth", "resolved")])


if __name__ == "__main__":
    unittest.main()
