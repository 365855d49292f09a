"""Real proxies in front of the server, in the foreground on ports of their own, and a relay between that counts answers."""

import os
import re
import shutil
import socket
import subprocess
import threading

from office import free_port, wait_for

PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


def installed(program):
    return shutil.which(program, path=PATH)


class Relay:
    """Stands between a proxy and the server and counts the answers, one for each message that the server saw."""

    def __init__(self, port):
        self.server_port = port
        self.streams = []  # [sent, answered] of each connection
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                proxy, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.server_port))
            stream = [bytearray(), bytearray()]
            self.streams.append(stream)
            threading.Thread(target=self.copy, args=(proxy, server, stream[0]), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, proxy, stream[1]), daemon=True).start()

    @staticmethod
    def copy(source, sink, kept):
        try:
            while data := source.recv(65536):
                kept += data
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        sink.close()

    def answers(self):
        """Final ones: `100 Continue` announces, and answers nothing."""
        return sum(len(re.findall(rb"HTTP/1\.1 [2-5]\d\d ", bytes(answered))) for _, answered in self.streams)

    def close(self):
        self.listener.close()


class Front:
    """One proxy that hands what it gets to the server. `log` lines: status of the server ("-": not handed over), then the request."""

    def __init__(self, name, folder, port):
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self.relay = Relay(port)
        self.port = free_port()
        self.log = self.folder / "access.log"
        self.process = None

    def launch(self, command):
        with open(self.log, "ab") as log, open(self.folder / "errors.log", "ab") as errors:
            self.process = subprocess.Popen(command, stdout=log, stderr=errors, cwd=self.folder)

        def listens():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended:\n" + (self.folder / "errors.log").read_text())
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0
        wait_for(f"{self.name} listens", listens)
        return self

    def forwarded(self):
        """(status of the server, request line) of each message that the proxy handed over."""
        rows = [line.split(" ", 1) for line in self.log.read_text(errors="replace").splitlines() if line.startswith("@")]
        return [(status[1:], line) for status, line in rows if status != "@-"]

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        self.relay.close()


def nginx(name, folder, port, settings=""):
    front = Front(name, folder, port)
    places = "".join(f"{what}_temp_path {front.folder}/{what};\n" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (front.folder / "nginx.conf").write_text(f"""
daemon off;
master_process off;
pid {front.folder}/pid;
error_log stderr;
events {{ worker_connections 1024; }}
http {{
  {places}
  log_format plain '@$upstream_status $request';
  access_log {front.log} plain;
  client_header_timeout 5s;
  client_body_timeout 5s;
  keepalive_timeout 5s;
  upstream office {{ server 127.0.0.1:{front.relay.port}; keepalive 8; }}
  server {{
    listen 127.0.0.1:{front.port};
    location / {{
      proxy_pass http://office;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_next_upstream off;
    }}
    {settings}
  }}
}}
""")
    return front.launch([installed("nginx"), "-p", str(front.folder), "-c", str(front.folder / "nginx.conf"), "-e", "stderr"])


def haproxy(name, folder, port, settings=""):
    front = Front(name, folder, port)
    (front.folder / "haproxy.cfg").write_text(f"""
global
  log stdout format raw daemon
defaults
  mode http
  log global
  retries 0
  timeout connect 5s
  timeout client 5s
  timeout server 30s
  timeout http-request 5s
  timeout http-keep-alive 5s
frontend front
  bind 127.0.0.1:{front.port}
  log-format "@%[var(txn.handed_over)] %{{+Q}}r"
  http-request set-var(txn.handed_over) str(-)
  http-response set-var(txn.handed_over) status
  {settings}
  default_backend office
backend office
  http-reuse always
  server office 127.0.0.1:{front.relay.port}
""")
    return front.launch([installed("haproxy"), "-db", "-f", str(front.folder / "haproxy.cfg")])
