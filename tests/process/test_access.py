"""Tokens and roles, the command line's exit codes, and no secret where people look."""

import json
import unittest

from office import ADMIN, SECRET, Handler, Lost, Office, event, wait_for

# method, path, least role, body
CALLS = [
    ("GET", "/v1/stats", "viewer", None),
    ("GET", "/v1/dead-letters", "viewer", None),
    ("GET", "/v1/dead-letters/count", "viewer", None),
    ("GET", "/v1/dead-letters/groups", "viewer", None),
    ("GET", "/v1/events/{id}", "viewer", None),
    ("GET", "/v1/events/{id}/attempts", "viewer", None),
    ("GET", "/v1/events/{id}/audit", "viewer", None),
    ("GET", "/v1/audit", "viewer", None),
    ("GET", "/v1/audit/head", "viewer", None),
    ("GET", "/v1/sources", "viewer", None),
    ("GET", "/v1/rejected", "viewer", None),
    ("GET", "/v1/events/{id}/payload", "operator", None),
    ("POST", "/v1/dead-letters/{id}/hold", "operator", {"link": "https://t/1", "reason": "r"}),
    ("POST", "/v1/dead-letters/{id}/release", "operator", {"reason": "r"}),
    ("POST", "/v1/dead-letters/{id}/resolve", "operator", {"code": "other", "reason": "r"}),
    ("POST", "/v1/dead-letters/{id}/reopen", "operator", {"reason": "r"}),
    ("POST", "/v1/dead-letters/{id}/replay", "operator", {"reason": "r"}),
    ("POST", "/v1/replays", "operator", {"filter": {}, "dry_run": True, "reason": "r"}),
    ("POST", "/v1/drain", "operator", {"wait": "0s"}),
    ("POST", "/v1/sources/stripe/resume", "operator", {"reason": "r"}),
    ("GET", "/v1/tokens", "admin", None),
    ("POST", "/v1/tokens", "admin", {"name": "x", "role": "viewer"}),
    ("POST", "/v1/tokens/x/revoke", "admin", {}),
]
RANK = {None: 0, "viewer": 1, "operator": 2, "admin": 3}


class Access(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.handler = Handler()
        cls.handler.default = Lost.always(400, {"Dlo-Reason": "no such customer"}, b"details")
        cls.office = Office(cls.handler).start()

    @classmethod
    def tearDownClass(cls):
        cls.office.close()
        cls.handler.close()

    def letter(self, key):
        event_id = self.office.stored(event(key, subject=key))
        self.office.wait_state(event_id, "dead")
        return event_id

    def test_the_matrix_of_roles(self):
        tokens = {None: None}
        for role in ("viewer", "operator", "admin"):
            tokens[role] = self.office.post("/v1/tokens", {"name": f"matrix-{role}", "role": role}, expect=(200, 201))["token"]
        event_id = self.letter("evt_matrix")
        for method, path, least, body in CALLS:
            for role, token in tokens.items():
                status, _, answer = self.office.request(method, path.format(id=event_id), body, token=token)
                if role is None:
                    self.assertEqual(status, 401, (method, path))
                elif RANK[role] < RANK[least]:
                    self.assertEqual(status, 403, (method, path, role, answer))
                else:
                    self.assertNotIn(status, (401, 403, 405, 500), (method, path, role, answer))
                    if status == 404:  # reached, and there was nothing to do
                        self.assertTrue(b"not_paused" in answer or b"no_such_token" in answer, (path, answer))

    def test_a_revoked_token_ends_at_once(self):
        token = self.office.post("/v1/tokens", {"name": "short", "role": "viewer"}, expect=(200, 201))["token"]
        self.assertEqual(self.office.request("GET", "/v1/stats", token=token)[0], 200)
        self.office.post("/v1/tokens/short/revoke", {})
        self.assertEqual(self.office.request("GET", "/v1/stats", token=token)[0], 401)

    def test_exit_codes_and_json(self):
        event_id = self.letter("evt_cli")
        for args, want in ((("list",), 0), (("show", event_id), 0), (("payload", event_id), 0), (("count",), 0), (("groups",), 0),
                           (("stats",), 0), (("show", 999999), 1), (("release", event_id), 1), (("list", "--nonsense"), 2),
                           (("replay",), 2), (("replay", "--type", "invoice.paid"), 2), (("replay", "--type", "invoice.paid", "--dry-run"), 0),
                           (("hold", event_id, "--link", "https://t/2", "--reason", "r"), 0), (("release", event_id, "--reason", "r"), 0),
                           (("resolve", event_id, "--code", "other", "--reason", "r"), 0), (("reopen", event_id, "--reason", "r"), 0),
                           (("replay", event_id, 999999, "--reason", "r"), 4), (("rejected",), 0), (("source", "list"), 0),
                           (("token", "list"), 0), (("replays",), 0)):
            code, out, err = self.office.cli(*args)
            self.assertEqual(code, want, (args, out, err))
        for args in (("list",), ("show", event_id), ("count",), ("groups",), ("stats",), ("replays",)):
            code, out, err = self.office.cli(*args, "--json")
            self.assertEqual(code, 0, (args, err))
            json.loads(out)
        code, _, err = self.office.cli("--server", "http://127.0.0.1:1", "list")
        self.assertEqual(code, 3)
        self.assertIn("127.0.0.1:1", err)
        code, _, err = self.office.cli("list", token=None)
        self.assertEqual(code, 1)
        self.assertIn("DLO_TOKEN", err)

    def test_no_secret_in_logs_metrics_or_answers(self):
        event_id = self.letter("evt_secret")
        self.office.send(event("evt_bad"), headers={"Stripe-Signature": "t=1,v1=canarysignature0123"})
        self.office.request("GET", "/v1/stats", token="dlo_canary_token")
        shown = json.dumps(self.office.get(f"/v1/events/{event_id}"))
        self.assertIn("[redacted]", shown)
        places = {"log": self.office.log(), "metrics": self.office.request("GET", "/metrics")[2].decode(), "event": shown,
                  "stats": json.dumps(self.office.get("/v1/stats"))}
        for name, text in places.items():
            for canary in (SECRET, ADMIN, "canarysignature0123", "dlo_canary_token"):
                self.assertNotIn(canary, text, name)

    def test_health_without_a_token(self):
        self.assertEqual(self.office.request("GET", "/healthz", token=None)[0], 200)
        self.assertEqual(self.office.request("GET", "/readyz", token=None)[0], 200)
        self.assertIn("dlo_accounting_difference 0", self.office.request("GET", "/metrics", token=None)[2].decode())


if __name__ == "__main__":
    unittest.main()
