"""Clients and namespaces: the extension with names, defaults and asyncio."""

from __future__ import annotations

import asyncio
import json
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from larder_kv import _native
from larder_kv._enums import Priority, Retention
from larder_kv._errors import Code, InvalidError, error_of
from larder_kv._native import Buffer, Completion, Extents, GetResult, MatchResult, PutResult

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer as BufferObject
    from typing_extensions import Self

    Hashes = BufferObject | Sequence[BufferObject]
    Memory = Extents | Iterable[Any]
    Groups = int | Sequence[int] | None
    Rectangle = tuple[int, int, int, int]
    Rectangles = Rectangle | Sequence[Rectangle] | None

__all__ = [
    "Client",
    "Completion",
    "GetResult",
    "MatchResult",
    "Namespace",
    "PutResult",
    "Queue",
    "hash_link",
    "hash_tokens",
]


def _us(milliseconds: float | None) -> int:
    """0 means the client's default, so a deadline that has passed is a microsecond."""
    if milliseconds is None:
        return 0
    return max(1, int(milliseconds * 1000))


def hash_tokens(tokens: Iterable[int], block_tokens: int) -> bytes:
    """Chain hashes of whole blocks of tokens, 32 bytes each, for callers without hashes of their own."""
    return _native.hash_tokens(tokens, block_tokens)


def hash_link(parent: bytes | None, content: BufferObject) -> bytes:
    """One step of a chain over bytes of any kind; parent None begins one."""
    return _native.hash_link(parent, content)


class Queue:
    """Where completions of submitted operations wait. `fileno()` is readable while one is there.

    The memory of an operation is kept alive until its completion was polled; arrays must not be freed or moved otherwise.
    """

    def __init__(self, client: Client) -> None:
        self._native = _native.Queue(client._native)

    def fileno(self) -> int:
        """An eventfd for poll, epoll or asyncio. Not to be read or closed."""
        return self._native.fileno()

    def poll(self, max: int = 64, timeout_ms: float = 0) -> list[Completion]:
        """Up to `max` completions (64 at most), oldest first; waits for the first one for so long.

        `completion.token` is what was submitted with it, `completion.result` a MatchResult, GetResult, PutResult, or the
        number of leading blocks of a wait, or of blocks in memory of a prefetch; `completion.code` is 0, or why it ended early (`Code.CANCELLED`)."""
        return self._native.poll(max, int(timeout_ms * 1000))

    def __len__(self) -> int:
        """Operations that were submitted and not polled yet."""
        return len(self._native)


class _Port:
    """A client's completions inside one event loop."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self.queue = _native.Queue(client._native)
        loop.add_reader(self.queue.fileno(), self.drain)

    def drain(self) -> None:
        while done := self.queue.poll(64, 0):
            for completion in done:
                if not completion.token.done():  # a cycle of future and completion would keep the memory
                    completion.token.set_result((completion.code, completion.result))


class Client:
    """A connection to a Larder cluster. May be used from any thread, and as a context manager.

    endpoints: "host:port" of any nodes, as text with commas or a sequence. What is not given here comes from LARDER_*
    variables, then from `config_file` (TOML; or LARDER_CLIENT_CONFIG), else it is the default. transport: "auto", "tcp",
    "shm" or "ucx". fork: what a child of this process gets when it uses the client: "error" raises ForkedError, "reopen"
    gives it a connection of its own. environment: whether LARDER_* variables are read.
    Raises UnavailableError when no node answers within `open_deadline_ms`.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str] | None = None,
        *,
        config_file: str | os.PathLike[str] | None = None,
        transport: str | None = None,
        token: str | None = None,
        name: str | None = None,
        fork: Literal["error", "reopen"] = "error",
        environment: bool = True,
        deadline_ms: float | None = None,
        open_deadline_ms: float | None = None,
        io_threads: int = 0,
        connections_per_peer: int = 0,
        replicas: int = 0,
        operations_max: int = 0,
        bytes_in_flight_max: int = 0,
        peer_bytes_in_flight_max: int = 0,
    ) -> None:
        if fork not in ("error", "reopen"):
            raise InvalidError(Code.INVALID, f'fork="{fork}": "error" or "reopen"')
        if endpoints is not None and not isinstance(endpoints, str):
            endpoints = ",".join(endpoints)
        numbers = {
            "io_threads": io_threads,
            "connections_per_peer": connections_per_peer,
            "replicas": replicas,
            "operations_max": operations_max,
            "bytes_in_flight_max": bytes_in_flight_max,
            "peer_bytes_in_flight_max": peer_bytes_in_flight_max,
            "deadline_us": _us(deadline_ms),
            "open_deadline_us": _us(open_deadline_ms),
        }
        self._native = _native.open(
            endpoints,
            None if config_file is None else os.fspath(config_file),
            transport,
            token,
            name,
            fork == "reopen",
            environment,
            numbers,
        )
        self._ports: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Port] = weakref.WeakKeyDictionary()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what is under way and returns once no byte can land any more. Also done when nobody refers to the
        client, its namespaces and queues any more."""
        for loop, port in list(self._ports.items()):
            if not loop.is_closed():
                loop.remove_reader(port.queue.fileno())
        self._native.close()
        self._ports.clear()

    @property
    def closed(self) -> bool:
        return self._native.closed

    def namespace(
        self, identity: Mapping[str, str | int | bool] | str, tenant: str | None = None, salt: bytes | str = b""
    ) -> Namespace:
        """What makes caches interchangeable, as a mapping or as text (JSON, or name=value lines), plus a tenant and its
        secret, which never leaves the process. Nodes are told on first use."""
        text = identity if isinstance(identity, str) else json.dumps(dict(identity))
        secret = salt.encode() if isinstance(salt, str) else salt
        return Namespace(self, _native.open_namespace(self._native, text, tenant, secret))

    def queue(self) -> Queue:
        """For callers that poll instead of waiting."""
        return Queue(self)

    def allocate(self, nbytes: int) -> Buffer:
        """Transfer memory, page-aligned: no copy over shm and RDMA."""
        return self._native.allocate(nbytes)

    def register(self, address: int, nbytes: int) -> None:
        """Makes memory known to transports that gain by it (RDMA). It must stay until `unregister`."""
        self._native.register(address, nbytes)

    def unregister(self, address: int) -> None:
        self._native.unregister(address)

    def release(self, pin: int) -> None:
        """Gives back the pin of a match."""
        self._native.release(pin)

    def cancel(self, operation: int, *, waiting_only: bool = False) -> None:
        """Ends an operation early; its completion comes soon, with what it already had. waiting_only: drops only what no
        node was asked for yet."""
        self._native.cancel(operation, not waiting_only)

    def stats(self) -> dict[str, Any]:
        """Counters since the client was opened; nodes are not asked."""
        return self._native.stats()

    def ping(self, node_id: str | None = None, deadline_ms: float | None = None) -> float:
        """Milliseconds of a round trip to a node, or to the first one of the table."""
        return self._native.ping(node_id, _us(deadline_ms)) / 1000

    def _port(self) -> _Port:
        loop = asyncio.get_running_loop()
        port = self._ports.get(loop)
        if port is None:
            port = self._ports[loop] = _Port(self, loop)
        return port

    async def _run(self, submit: Callable[[_native.Queue, asyncio.Future[tuple[int, Any]]], int]) -> tuple[int, Any]:
        """Waits for an operation. When the caller is cancelled the operation is too, and the caller goes on only when its
        memory is its own again."""
        future: asyncio.Future[tuple[int, Any]] = asyncio.get_running_loop().create_future()
        operation = submit(self._port().queue, future)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
                self._native.cancel(operation, True)
        if cancelled is not None:
            raise cancelled
        return future.result()


class Namespace:
    """Blocks of one identity and tenant. Made by `Client.namespace`.

    hashes: chain hashes, 32 bytes each, root first: one buffer of all (bytes, array) or a sequence of bytes objects.
    groups: numbers of the engine's KV-cache groups. rectangle: (first layer, end layer, first head group, end head
    group), None for the whole grid. deadline_ms: from now, None for the client's default; at it a call returns with what
    it has. priority: `Priority`.
    """

    def __init__(self, client: Client, native: _native.Namespace) -> None:
        self._client = client
        self._native = native

    @property
    def client(self) -> Client:
        return self._client

    @property
    def id(self) -> bytes:
        """32 bytes, equal wherever identity, tenant and salt are."""
        return self._native.id

    @property
    def layers(self) -> int:
        return self._native.layers

    @property
    def head_groups(self) -> int:
        return self._native.head_groups

    # --- what is there

    def match(
        self,
        hashes: Hashes,
        *,
        groups: Sequence[int | tuple[int, int]] | None = None,
        rectangle: Rectangle | None = None,
        pin_ms: float = 0,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> MatchResult:
        """Which blocks of a chain can be had, and the longest prefix that every group can use. A group is a number, or
        (number, blocks of its sliding window). pin_ms keeps hits from eviction. No use is counted: see `touch`."""
        return self._native.match(hashes, groups, rectangle, int(pin_ms * 1000), _us(deadline_ms), priority)

    async def match_async(
        self,
        hashes: Hashes,
        *,
        groups: Sequence[int | tuple[int, int]] | None = None,
        rectangle: Rectangle | None = None,
        pin_ms: float = 0,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> MatchResult:
        """`match` for asyncio."""
        code, found = await self._client._run(
            lambda queue, token: self._native.submit_match(
                queue, token, hashes, groups, rectangle, int(pin_ms * 1000), _us(deadline_ms), priority
            )
        )
        if code != 0:
            raise error_of(code, "the match ended early")
        result: MatchResult = found
        return result

    def submit_match(
        self,
        queue: Queue,
        token: Any,
        hashes: Hashes,
        *,
        groups: Sequence[int | tuple[int, int]] | None = None,
        rectangle: Rectangle | None = None,
        pin_ms: float = 0,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """`match` that completes in `queue`; `token` comes back with it. Returns the operation, for `Client.cancel`."""
        return self._native.submit_match(
            queue._native, token, hashes, groups, rectangle, int(pin_ms * 1000), _us(deadline_ms), priority
        )

    def wait(
        self,
        hashes: Hashes,
        *,
        groups: Sequence[int] | None = None,
        rectangle: Rectangle | None = None,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """Waits until every block is there, whoever writes it, or for the deadline: how many leading ones are."""
        return self._native.wait(hashes, groups, rectangle, _us(deadline_ms), priority)

    async def wait_async(
        self,
        hashes: Hashes,
        *,
        groups: Sequence[int] | None = None,
        rectangle: Rectangle | None = None,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """`wait` for asyncio."""
        return await self._count(self._native.submit_wait, hashes, groups, rectangle, deadline_ms, priority)

    def submit_wait(
        self,
        queue: Queue,
        token: Any,
        hashes: Hashes,
        *,
        groups: Sequence[int] | None = None,
        rectangle: Rectangle | None = None,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """`wait` that completes in `queue`."""
        return self._native.submit_wait(queue._native, token, hashes, groups, rectangle, _us(deadline_ms), priority)

    def prefetch(
        self,
        hashes: Hashes,
        *,
        groups: Sequence[int] | None = None,
        rectangle: Rectangle | None = None,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """For a request that waits its turn: moves blocks from their nodes' SSDs into their memory. Returns when all are there,
        or at the deadline: how many blocks (hashes times groups) are in memory. Nothing is pinned."""
        return self._native.prefetch(hashes, groups, rectangle, _us(deadline_ms), priority)

    async def prefetch_async(
        self,
        hashes: Hashes,
        *,
        groups: Sequence[int] | None = None,
        rectangle: Rectangle | None = None,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """`prefetch` for asyncio."""
        return await self._count(self._native.submit_prefetch, hashes, groups, rectangle, deadline_ms, priority)

    def submit_prefetch(
        self,
        queue: Queue,
        token: Any,
        hashes: Hashes,
        *,
        groups: Sequence[int] | None = None,
        rectangle: Rectangle | None = None,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """`prefetch` that completes in `queue`."""
        return self._native.submit_prefetch(queue._native, token, hashes, groups, rectangle, _us(deadline_ms), priority)

    async def _count(
        self,
        submit: Callable[..., int],
        hashes: Hashes,
        groups: Sequence[int] | None,
        rectangle: Rectangle | None,
        deadline_ms: float | None,
        priority: Priority,
    ) -> int:
        _, found = await self._client._run(
            lambda queue, token: submit(queue, token, hashes, groups, rectangle, _us(deadline_ms), priority)
        )
        count: int = found
        return count

    # --- blocks

    def get(
        self,
        hashes: Hashes,
        into: Memory,
        *,
        groups: Groups = None,
        rectangles: Rectangles = None,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> GetResult:
        """Pulls blocks into memory and verifies every byte there. `into`: for each block an array, tensor or buffer of its
        size, or a list of them; or `Extents`, which cost nothing to use again. Only the memory of hits means anything.
        groups, rectangles: one for all, or one for each block."""
        return self._native.get(hashes, into, groups, rectangles, _us(deadline_ms), priority)

    async def get_async(
        self,
        hashes: Hashes,
        into: Memory,
        *,
        groups: Groups = None,
        rectangles: Rectangles = None,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> GetResult:
        """`get` for asyncio. The memory is the caller's again when it returns or raises."""
        _, found = await self._client._run(
            lambda queue, token: self._native.submit_get(
                queue, token, hashes, into, groups, rectangles, _us(deadline_ms), priority
            )
        )
        result: GetResult = found
        return result

    def submit_get(
        self,
        queue: Queue,
        token: Any,
        hashes: Hashes,
        into: Memory,
        *,
        groups: Groups = None,
        rectangles: Rectangles = None,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """`get` that completes in `queue`: until then the memory is the library's."""
        return self._native.submit_get(
            queue._native, token, hashes, into, groups, rectangles, _us(deadline_ms), priority
        )

    def put(
        self,
        hashes: Hashes,
        blocks: Memory,
        *,
        groups: Groups = None,
        rectangles: Rectangles = None,
        parts: Sequence[tuple[int, int]] | None = None,
        constituents: Hashes | None = None,
        first_depth: int = 0,
        retention: Retention = Retention.NONE,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> PutResult:
        """Stores blocks out of memory, as `get` takes it. parts: (count, bytes) runs of a block's parts where they differ in
        size. constituents: the engine's own hashes when a block is made of several of its blocks, as many for each.
        first_depth: where in its chain the first block stands; the others follow. retention: what is expected of them."""
        return self._native.put(
            hashes,
            blocks,
            groups,
            rectangles,
            parts,
            constituents,
            first_depth,
            retention,
            _us(deadline_ms),
            priority,
        )

    async def put_async(
        self,
        hashes: Hashes,
        blocks: Memory,
        *,
        groups: Groups = None,
        rectangles: Rectangles = None,
        parts: Sequence[tuple[int, int]] | None = None,
        constituents: Hashes | None = None,
        first_depth: int = 0,
        retention: Retention = Retention.NONE,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> PutResult:
        """`put` for asyncio. The memory is the caller's again when it returns or raises."""
        _, found = await self._client._run(
            lambda queue, token: self._native.submit_put(
                queue,
                token,
                hashes,
                blocks,
                groups,
                rectangles,
                parts,
                constituents,
                first_depth,
                retention,
                _us(deadline_ms),
                priority,
            )
        )
        result: PutResult = found
        return result

    def submit_put(
        self,
        queue: Queue,
        token: Any,
        hashes: Hashes,
        blocks: Memory,
        *,
        groups: Groups = None,
        rectangles: Rectangles = None,
        parts: Sequence[tuple[int, int]] | None = None,
        constituents: Hashes | None = None,
        first_depth: int = 0,
        retention: Retention = Retention.NONE,
        deadline_ms: float | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """`put` that completes in `queue`: until then the memory must not change."""
        return self._native.submit_put(
            queue._native,
            token,
            hashes,
            blocks,
            groups,
            rectangles,
            parts,
            constituents,
            first_depth,
            retention,
            _us(deadline_ms),
            priority,
        )

    # --- keys

    def touch(
        self, hashes: Hashes, *, usable: int, groups: Groups = None, retention: Retention = Retention.NONE
    ) -> None:
        """Once a request, with its whole chain: what was used stays longest. Returns at once."""
        self._native.touch(hashes, groups, usable, retention)

    def finish_turn(self, hashes: Hashes, retention: Retention, *, groups: Groups = None) -> None:
        """When a request ends whose use `touch` told: what is expected of its chain. No use of its own; moves blocks in
        the order in which they leave, until their next use. Returns at once."""
        self._native.finish_turn(hashes, groups, retention)

    def report(self, hashes: Hashes, *, groups: Groups = None, rectangle: Rectangle | None = None) -> None:
        """Blocks whose content turned out wrong: nodes check their copies and drop bad ones. Returns at once."""
        self._native.report(hashes, groups, rectangle)

    def remove(self, hashes: Hashes, *, groups: Groups = None, deadline_ms: float | None = None) -> int:
        """How many blocks were removed."""
        return self._native.remove(hashes, groups, _us(deadline_ms))

    def clear(self, *, deadline_ms: float | None = None) -> int:
        """Removes everything in this namespace, on every node. Raises when a node did not answer."""
        return self._native.clear(_us(deadline_ms))
