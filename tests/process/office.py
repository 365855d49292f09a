"""A real dlo server, a real handler and real provider SDKs as senders, for process tests."""

import hashlib
import hmac
import http.client
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import stripe

BINARY = os.environ["DLO_BINARY"]
SECRET = "whsec_process_tests_0123456789abcdef"
ADMIN = "dlo_admin_token_of_the_process_tests_0123456789"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, condition, seconds=30.0):
    """Polls until condition() is true; returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"timed out after {seconds} s: {what}")
        time.sleep(0.02)


def stripe_header(body: bytes, secret=SECRET, timestamp=None):
    """Signed by Stripe's own library."""
    timestamp = int(time.time()) if timestamp is None else timestamp
    if is_utf8(body):
        signature = stripe.WebhookSignature._compute_signature(f"{timestamp}.{body.decode()}", secret)
    else:  # the library signs text only
        signature = hmac_hex(secret, f"{timestamp}.".encode() + body)
    return f"t={timestamp},v1={signature}"


def is_utf8(body: bytes):
    try:
        body.decode()
        return True
    except UnicodeDecodeError:
        return False


def hmac_hex(secret, payload: bytes):
    return hmac.new(secret.encode(), payload, hashlib.sha256).hexdigest()


def event(key, kind="invoice.paid", subject="sub_1", account=None, livemode=True, **more):
    """An event of Stripe's shape."""
    obj = {"id": f"in_{key}", "object": "invoice", "subscription": subject, "customer": f"cus_{subject}",
           "amount_paid": 4200, "currency": "eur"}
    obj.update(more)
    body = {"id": key, "object": "event", "api_version": "2025-03-31.basil", "created": int(time.time()), "livemode": livemode,
            "pending_webhooks": 1, "type": kind, "data": {"object": obj}}
    if account:
        body["account"] = account
    return json.dumps(body).encode()


class Handler:
    """A billing application: applies each key once, answers as the test scripted. Its log is the truth about effects."""

    def __init__(self):
        self.lock = threading.Lock()
        self.calls = []       # (key, kind, attempt, replay, subject)
        self.effects = {}     # key -> how often the effect was applied
        self.order = []       # keys in the order their effect was applied
        self.script = {}      # key or kind -> callable(call_number, headers) -> (status, headers, body) or None for success
        self.default = None
        self.delay = 0.0
        self.headers_seen = {}
        self.bodies = {}
        handler = self

        class Request(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, headers, answer = handler.handle(self.headers, body)
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request, client_address):
                pass  # the server under test is killed in the middle of requests

        self.server = Server(("127.0.0.1", 0), Request)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handle(self, headers, body):
        key = headers["Dlo-Event-Key"]
        kind = headers.get("Dlo-Kind", "")
        with self.lock:
            n = sum(1 for c in self.calls if c[0] == key) + 1 if len(self.calls) < 5000 else 1
            self.calls.append((key, kind, int(headers["Dlo-Attempt"]), headers["Dlo-Replay"] == "true"))
            self.headers_seen[key] = dict(headers.items())
            self.bodies[key] = body
        if self.delay:
            time.sleep(self.delay)
        rule = self.script.get(key) or self.script.get(kind) or self.default
        if rule:
            answer = rule(n, headers)
            if answer is not None:
                if len(answer) == 4:  # applied, but the answer is lost or says otherwise
                    self.apply(key)
                    answer = answer[:3]
                return answer
        return 200, self.apply(key), b""

    def apply(self, key):
        with self.lock:
            self.order.append(key) if key not in self.effects else None
            seen = key in self.effects
            self.effects[key] = self.effects.get(key, 0) + (0 if seen else 1)
            return {"Dlo-Outcome": "already-applied"} if seen else {"Dlo-Outcome": "applied", "Dlo-Handler-Version": "7"}

    def calls_of(self, key):
        with self.lock:
            return [c for c in self.calls if c[0] == key]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Office:
    """One server process on a folder of its own."""

    def __init__(self, handler=None, sources=None, target="", env=None, folder=None):
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="dlo-process-"))
        self.own_folder = folder is None
        self.port = free_port()
        self.env = dict(os.environ, DLO_ADMIN_TOKEN=ADMIN, STRIPE_SECRET=SECRET, **(env or {}))
        self.process = None
        self.prefix = []  # of the command that starts the server
        url = f"http://127.0.0.1:{handler.port if handler else 1}/webhooks"
        if sources is None:
            sources = '[[source]]\nname = "stripe"\nscheme = "stripe"\nsecrets = ["env:STRIPE_SECRET"]\ntarget = "billing"\n'
        if "retry" not in target:
            target += '\nretry = ["100ms","100ms","100ms","100ms","100ms"]'
        # Shares of the disk are the machine's, not the tests'; and a sanitizer takes more memory than a server should.
        self.write_config(f'[store]\nurl = "sqlite:{self.folder}/data/dlo.db"\nmin_free_percent = 0\nwarn_free_percent = 0\n'
                          f'[server]\nlisten = "127.0.0.1:{self.port}"\nmax_memory = 0\n'
                          f'{sources}\n[[target]]\nname = "billing"\nurl = "{url}"\nallow_private = true\n{target}\n')

    def write_config(self, text):
        (self.folder / "dlo.toml").write_text(text)

    def configure(self, section, *lines):
        """Adds settings to a section of the configuration, in place of those of the same name."""
        names = [line.split(" =")[0] for line in lines]
        out = []
        for line in (self.folder / "dlo.toml").read_text().splitlines():
            if line.split(" =")[0] not in names:
                out.append(line)
            if line == section:
                out += lines
        self.write_config("\n".join(out) + "\n")

    def launch(self, **env):
        with open(self.folder / "serve.log", "ab") as log:
            self.process = subprocess.Popen([*self.prefix, BINARY, "serve", "--config", str(self.folder / "dlo.toml")],
                                            env=dict(self.env, **env), stdout=log, stderr=log, cwd=self.folder)
        return self

    def start(self, **env):
        self.launch(**env)
        wait_for("the server answers", self.ready, 60)
        return self

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log()[-4000:]}")
        try:
            return self.request("GET", "/readyz", token=None)[0] == 200
        except OSError:
            return False

    def log(self):
        return (self.folder / "serve.log").read_text(errors="replace")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def term(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.term()
            self.process.wait(40)
        code = self.process.returncode if self.process else None
        return code

    def close(self):
        try:
            if self.process and self.process.poll() is None:
                self.kill()
        finally:
            if self.own_folder:
                shutil.rmtree(self.folder, ignore_errors=True)

    def request(self, method, path, body=None, token=ADMIN, headers=None, timeout=30):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = dict(headers or {})
            if token:
                headers["Authorization"] = f"Bearer {token}"
            if isinstance(body, (dict, list)):
                body = json.dumps(body).encode()
                headers.setdefault("Content-Type", "application/json")
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def get(self, path, **kw):
        status, _, body = self.request("GET", path, **kw)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def post(self, path, body=None, expect=(200, 202), **kw):
        status, _, answer = self.request("POST", path, {} if body is None else body, **kw)
        assert status in expect, (path, status, answer)
        return json.loads(answer)

    def send(self, body, source="stripe", headers=None, secret=SECRET):
        """Posts one delivery as Stripe would; returns (status, answer)."""
        headers = {"Stripe-Signature": stripe_header(body, secret), "Content-Type": "application/json"} if headers is None else headers
        status, _, answer = self.request("POST", f"/in/{source}", body, token=None, headers=headers)
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, answer

    def stored(self, body, **kw):
        status, answer = self.send(body, **kw)
        assert status == 200 and answer["status"] == "stored", (status, answer)
        return answer["id"]

    def state(self, event_id):
        return self.get(f"/v1/events/{event_id}")["state"]

    def wait_state(self, event_id, state, seconds=30):
        wait_for(f"event {event_id} is {state}, is {self.state(event_id)}", lambda: self.state(event_id) == state, seconds)
        return self.get(f"/v1/events/{event_id}")

    def cli(self, *args, token=ADMIN, stdin=subprocess.DEVNULL, timeout=60):
        env = dict(self.env, DLO_SERVER=f"http://127.0.0.1:{self.port}", NO_COLOR="1")
        if token:
            env["DLO_TOKEN"] = token
        run = subprocess.run([BINARY, *map(str, args)], env=env, capture_output=True, text=True, stdin=stdin, timeout=timeout, errors="replace")
        return run.returncode, run.stdout, run.stderr

    def difference(self):
        return self.get("/v1/stats?recount=true")["accounting"]["difference"]


class Lost:
    """Rules for Handler.script."""

    @staticmethod
    def always(status, headers=None, body=b"no"):
        return lambda n, h: (status, headers or {}, body)

    @staticmethod
    def first(times, status, headers=None, body=b"no"):
        return lambda n, h: (status, headers or {}, body) if n <= times else None

    @staticmethod
    def applied_then(status):
        """The effect happens, the answer says it failed, the first time."""
        return lambda n, h: (status, {}, b"", True) if n == 1 else None
