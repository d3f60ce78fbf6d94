"""A port for a process that is started later. Standard library only."""
import itertools
import os
import pathlib
import socket

_numbers = itertools.count(os.getpid() * 97)  # tests that run side by side begin elsewhere


def free_port():
    """Below those that the kernel gives to connections: one of these would be taken again before anybody listens."""
    end = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    while True:
        port = 10_000 + next(_numbers) % (end - 10_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
