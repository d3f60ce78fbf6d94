"""A DNS server of a test's own: UDP on the loopback address, answers as it is told to."""
import socket
import struct
import threading

A, AAAA, SRV, NO_NAME = 1, 28, 33, 3


def encode(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part) + b"\0"


class NameServer:
    def __init__(self):
        self.addresses = {}  # name -> IPv4 addresses
        self.services = {}   # name -> (port, name of the host)
        self.silent = False  # takes questions and says nothing
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        self.asked = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self):
        self.silent = True
        self.socket.close()

    def serve(self):
        while True:
            try:
                question, asker = self.socket.recvfrom(4096)
            except OSError:
                return
            self.asked += 1
            if self.silent:
                continue
            try:
                self.socket.sendto(self.answer(question), asker)
            except OSError:
                return

    def answer(self, question):
        at, parts = 12, []
        while question[at]:
            parts.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind, = struct.unpack_from(">H", question, at + 1)
        name = ".".join(parts).lower()
        records = []
        if kind == A:
            records = [socket.inet_aton(address) for address in self.addresses.get(name, [])]
        elif kind == SRV:
            records = [struct.pack(">HHH", 0, 0, port) + encode(host) for port, host in self.services.get(name, [])]
        known = self.addresses.get(name) or self.services.get(name)
        head = question[:2] + struct.pack(">HHHHH", 0x8180 | (0 if known else NO_NAME), 1, len(records), 0, 0)
        body = b"".join(struct.pack(">HHHIH", 0xC00C, kind, 1, 5, len(each)) + each for each in records)
        return head + question[12:at + 5] + body
