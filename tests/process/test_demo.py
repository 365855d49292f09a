"""./run demo and the README's commands, tried as a new user would."""

import os
import pathlib
import re
import signal
import subprocess
import unittest

from office import BINARY, free_port, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]


@unittest.skipUnless(BINARY.endswith("build/release/dlo"), "./run demo builds and runs the release binary")
class Demo(unittest.TestCase):
    def test_the_demo_shows_dead_letters_groups_and_a_replay_that_works(self):
        port, handler = free_port(), free_port()
        env = dict(os.environ, DLO_DEMO_PORT=str(port), DLO_DEMO_HANDLER_PORT=str(handler))
        log = ROOT / "build" / "demo-test.log"
        with open(log, "wb") as out:
            demo = subprocess.Popen([str(ROOT / "run"), "demo"], env=env, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
        try:
            text = wait_for("the demo is ready", lambda: demo.poll() is None and "go on until Ctrl-C" in log.read_text() and log.read_text(), 300)
            self.assertIn("200 events stored", text)
            self.assertIn("unsupported_currency", text)
            token = (ROOT / "build" / "demo" / "admin.token").read_text().strip()
            cli_env = dict(os.environ, DLO_SERVER=f"http://127.0.0.1:{port}", DLO_TOKEN=token)
            shown = re.search(r"dlo show (\d+)", text).group(1)
            self.assertIn("What you can do next", self.cli(cli_env, "show", shown))
            subprocess.run(["curl", "-fsS", "-X", "POST", f"http://127.0.0.1:{handler}/fix"], check=True, capture_output=True)
            fingerprint = re.search(r"--fingerprint ([0-9a-f]{16})", text).group(1)
            self.assertRegex(self.cli(cli_env, "replay", "--fingerprint", fingerprint, "--reason", "fixed", "--yes"), r"(\d+) of \1 handed over, \1 committed")
            self.assertIn("accounting difference 0", self.cli(cli_env, "stats"))
        finally:
            os.killpg(demo.pid, signal.SIGTERM)
            demo.wait(40)

    def cli(self, env, *args):
        run = subprocess.run([BINARY, *args], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run.stdout + run.stderr


if __name__ == "__main__":
    unittest.main()
