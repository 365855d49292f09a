"""Clients and handlers that speak in bytes: what a library would tidy up goes out, and is read, exactly as it is."""

import select
import socket
import threading
from collections import namedtuple

Answer = namedtuple("Answer", "status headers body")  # headers: lower-case name -> value


class Raw:
    """A connection that sends exactly the bytes it is given."""

    def __init__(self, port, seconds=30):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        self.socket.settimeout(seconds)
        self.socket.connect(("127.0.0.1", port))
        self.received = b""
        self.closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # an early answer closed the connection; reading tells
        return self

    def finish(self):
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        return self

    def pour(self, piece, at_most=64 << 20):
        """Sends `piece` over and over until the server says something; returns how many bytes it took."""
        piece = piece * max(1, 65536 // len(piece))
        sent = 0
        self.socket.setblocking(False)
        try:
            while sent < at_most:
                readable, writable, _ = select.select([self.socket], [self.socket], [], 30)
                if readable:
                    break
                if not writable:
                    raise AssertionError(f"neither takes nor answers after {sent} bytes")
                sent += self.socket.send(memoryview(piece)[sent % len(piece):])
        except OSError:
            pass
        finally:
            self.socket.settimeout(30)
        return sent

    def read_all(self):
        """Reads until the server closes; a reset counts as closed."""
        try:
            while data := self.socket.recv(65536):
                self.received += data
            self.closed = True
        except ConnectionResetError:
            self.closed = True
        except TimeoutError:
            pass
        return self.received

    def answers(self):
        """Every answer until the server closed."""
        return parse_answers(self.read_all())


def parse_answers(data):
    answers = []
    while data:
        head, gap, data = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        if not gap or not first.startswith(b"HTTP/1.1 "):
            raise AssertionError(f"not an answer: {head[:200]!r}")
        headers = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.decode().lower()] = value.decode().strip()
        status = int(first.split(b" ")[1])
        length = 0 if status == 100 else int(headers["content-length"])
        answers.append(Answer(status, headers, data[:length]))
        data = data[length:]
    return answers


def request(method, target, body=b"", headers=()):
    """A plain request as bytes; `headers` are whole lines."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    if method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class RawHandler:
    """A handler that keeps each request as the bytes in which it came."""

    def __init__(self, answer=b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"):
        self.answer = answer
        self.requests = []  # (head, body)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        with connection:
            try:
                while True:
                    while b"\r\n\r\n" not in data:
                        data += self.more(connection)
                    head, _, data = data.partition(b"\r\n\r\n")
                    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n")
                                   if line.lower().startswith(b"content-length:")), 0)
                    while len(data) < length:
                        data += self.more(connection)
                    self.requests.append((head, data[:length]))
                    data = data[length:]
                    connection.sendall(self.answer)
            except OSError:
                return

    @staticmethod
    def more(connection):
        data = connection.recv(65536)
        if not data:
            raise OSError("the peer went")
        return data

    def close(self):
        self.listener.close()
