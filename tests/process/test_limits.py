"""Limits: a full source is told to come back, the others go on, and a full disk loses nothing and heals by itself."""

import json
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

from office import Handler, Office, event, stripe_header, wait_for

SOURCES = "".join(f'''
[[source]]
name = "{name}"
scheme = "stripe"
secrets = ["env:STRIPE_SECRET"]
target = "billing"
max_waiting = 20
''' for name in ("flood", "calm"))


def deliver(office, body, source):
    """(status, answer, headers)"""
    status, headers, answer = office.request("POST", f"/in/{source}", body, token=None,
                                             headers={"Stripe-Signature": stripe_header(body)})
    return status, json.loads(answer), headers


class Limits(unittest.TestCase):
    def test_a_flooded_source_gets_429_the_other_goes_on_and_it_is_normal_afterwards(self):
        handler = Handler()
        up = threading.Event()
        handler.default = lambda n, h: None if up.is_set() else (503, {}, b"down")
        office = Office(handler, SOURCES, target='retry = ["1s","1s","1s","1s","1s"]\nconcurrency = 2')
        self.addCleanup(handler.close)
        self.addCleanup(office.close)
        office.start()
        accepted, refused = [], []

        def flood():
            key = f"evt_flood_{len(accepted) + len(refused)}"
            status, answer, headers = deliver(office, event(key, subject=key), "flood")
            (accepted if status == 200 else refused).append((key, status, answer, headers))
            return refused

        wait_for("the flooded source is refused", flood)
        _, status, answer, headers = refused[0]
        self.assertEqual(status, 429)
        self.assertEqual(answer["code"], "source_backlog")
        self.assertTrue(5 <= int(headers["Retry-After"]) <= 60, headers)
        self.assertGreaterEqual(len(accepted), 20)
        status, answer, _ = deliver(office, event("evt_calm"), "calm")
        self.assertEqual((status, answer["status"]), (200, "stored"))

        up.set()
        wait_for("the source is open again", lambda: deliver(office, event("evt_after", subject="a"), "flood")[0] == 200, 60)
        wait_for("everything accepted took effect", lambda: all(k in handler.effects for k, *_ in accepted), 60)
        self.assertFalse(any(k in handler.effects for k, *_ in refused), "nothing refused was taken")
        self.assertIn('dlo_refused_total{source="flood"}', office.request("GET", "/metrics")[2].decode())
        self.assertEqual(office.difference(), 0)

    def small_disk(self, size):
        """A folder with a file system of its own, and an office on it."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="dlo-small-disk-"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
        if mounted.returncode != 0:
            folder.rmdir()
            self.skipTest("no tmpfs can be mounted here")
        handler = Handler()
        office = Office(handler, folder=folder)

        def clean():
            office.close()
            handler.close()
            subprocess.run(["umount", "-l", folder], check=False)
            folder.rmdir()
        self.addCleanup(clean)
        return folder, office

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small disk takes root")
    def test_a_disk_that_fills_is_warned_of_then_refuses_and_resumes(self):
        folder, office = self.small_disk("400m")
        # The journal takes 64 or 128 MiB: at least two thirds are free at first. Resumed is at 1.6 times 30, at 48 %.
        office.configure("[store]", 'min_free = "1KiB"', "min_free_percent = 30", "warn_free_percent = 90")
        office.start()

        def level(want):
            return f"\ndlo_disk_low {want}\n" in office.request("GET", "/metrics")[2].decode()
        wait_for("less than 90 % are free", lambda: level(1))
        self.assertIn("disk_filling", office.log())
        office.stored(event("evt_before", subject="a"))
        ballast = folder / "ballast"
        with open(ballast, "wb") as file:
            while os.statvfs(folder).f_bavail > os.statvfs(folder).f_blocks // 4:
                file.write(b"x" * (1 << 20))
        wait_for("less than 30 % are free", lambda: level(2))
        status, answer, headers = deliver(office, event("evt_refused", subject="b"), "stripe")
        self.assertEqual((status, answer["code"]), (503, "disk_low"))
        self.assertTrue(5 <= int(headers["Retry-After"]) <= 60, headers)
        ballast.unlink()
        wait_for("enough is free again", lambda: level(1))
        self.assertEqual(deliver(office, event("evt_refused", subject="b"), "stripe")[0], 200)
        self.assertEqual(office.difference(), 0)

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small disk takes root")
    def test_a_full_disk_answers_503_loses_nothing_and_resumes_without_a_restart(self):
        folder, office = self.small_disk("200m")
        office.configure("[store]", 'min_free = "1KiB"')
        office.start()
        first = office.stored(event("evt_before", subject="s0"))
        ballast = folder / "ballast"
        with open(ballast, "wb") as file:
            try:
                while True:
                    file.write(b"x" * 65536)
            except OSError:
                pass
        acknowledged, refused = [first], []

        def fill():
            key = f"evt_full_{len(acknowledged)}_{len(refused)}"
            status, answer, headers = deliver(office, event(key, subject=key, note="y" * 200_000), "stripe")
            if status == 200:
                acknowledged.append(answer["id"])
            else:
                refused.append((status, answer, headers))
            return refused

        wait_for("the disk is full", fill, 120)
        status, answer, headers = refused[0]
        self.assertEqual(status, 503, answer)
        self.assertIn("Retry-After", headers)
        self.assertEqual(office.state(first), "succeeded", "reading goes on")
        ballast.unlink()
        wait_for("it accepts again", lambda: deliver(office, event("evt_later", subject="z"), "stripe")[0] == 200, 60)
        for event_id in acknowledged:
            office.wait_state(event_id, "succeeded", 60)
        self.assertEqual(office.difference(), 0)


if __name__ == "__main__":
    unittest.main()
