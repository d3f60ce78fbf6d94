#!/usr/bin/env python3
"""Stands in front of a node: passes its bytes on, later, not at all, or with a bit of them flipped.

    relay.py LISTEN=TARGET...     pairs of host:port

Commands on standard input, one a line: `delay MS` (each way), `stop in|out` (bytes to, from the targets), `flip`
(one bit of the next chunk from each side), `clear`. Each is answered by `ok`. It ends when its standard input does.
"""
import asyncio
import random
import socket
import struct
import sys

CHUNK_BYTES = 256 << 10
CHUNKS_WAITING = 32  # of each direction of a connection; then its sender waits


class Trouble:
    """What happens to bytes now."""

    def __init__(self):
        self.delay_s = 0
        self.flips = {"in": 0, "out": 0}
        self.open = {"in": asyncio.Event(), "out": asyncio.Event()}
        self.random = random.Random(0)
        self.clear()

    def clear(self):
        self.delay_s = 0
        self.flips = {"in": 0, "out": 0}
        for gate in self.open.values():
            gate.set()

    def command(self, line):
        word, *rest = line.split()
        if word == "delay":
            self.delay_s = float(rest[0]) / 1000
        elif word == "stop":
            self.open[rest[0]].clear()
        elif word == "flip":
            self.flips = {"in": 1, "out": 1}
        elif word == "clear":
            self.clear()
        else:
            raise ValueError(line)

    def change(self, way, chunk):
        # Small ones are headers, which a flipped bit makes nonsense; payload is what checksums have to find.
        if self.flips[way] == 0 or len(chunk) < 4096:
            return chunk
        self.flips[way] -= 1
        changed = bytearray(chunk)
        changed[self.random.randrange(len(changed) // 2, len(changed))] ^= 1 << self.random.randrange(8)
        return bytes(changed)


def reset(sock):
    """The peer sees what it would see of a process that died."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def take(loop, sock, queue, trouble, way):
    while True:
        try:
            chunk = await loop.sock_recv(sock, CHUNK_BYTES)
        except OSError:
            chunk = None  # a reset goes on as one
        if chunk:
            chunk = trouble.change(way, chunk)
        await queue.put((loop.time() + trouble.delay_s, chunk))
        if not chunk:
            return


async def give(loop, sock, queue, trouble, way):
    while True:
        due, chunk = await queue.get()
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
        await trouble.open[way].wait()
        if chunk is None:
            raise ConnectionResetError
        if not chunk:
            sock.shutdown(socket.SHUT_WR)
            return
        await loop.sock_sendall(sock, chunk)


async def carry(loop, client, target, trouble):
    """One connection, until both sides have ended or one was reset."""
    server = socket.socket()
    server.setblocking(False)
    for sock in (client, server):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tasks = []
    try:
        await trouble.open["in"].wait()
        await loop.sock_connect(server, target)
        for source, sink, way in ((client, server, "in"), (server, client, "out")):
            queue = asyncio.Queue(CHUNKS_WAITING)
            tasks.append(loop.create_task(take(loop, source, queue, trouble, way)))
            tasks.append(loop.create_task(give(loop, sink, queue, trouble, way)))
        await asyncio.gather(*tasks)
    except OSError:
        pass
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        reset(client)
        reset(server)


async def listen(loop, address, target, trouble):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(128)
    listener.setblocking(False)
    connections = set()  # a task that nobody holds may be collected
    while True:
        client, _ = await loop.sock_accept(listener)
        client.setblocking(False)
        task = loop.create_task(carry(loop, client, target, trouble))
        connections.add(task)
        task.add_done_callback(connections.discard)


def address_of(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


async def main(pairs):
    loop = asyncio.get_running_loop()
    trouble = Trouble()
    listeners = []
    for pair in pairs:
        address, target = pair.split("=")
        listeners.append(loop.create_task(listen(loop, address_of(address), address_of(target), trouble)))
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("ok", flush=True)
    while line := await commands.readline():
        trouble.command(line.decode())
        print("ok", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:]))
    except KeyboardInterrupt:
        pass
