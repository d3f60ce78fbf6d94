"""Mooncake's store by its own names, on Larder: change ``from mooncake.store import`` to ``from larder_kv.mooncake import``.

What is the same: the calls below, their arguments and their return codes (checked call by call against mooncake_master,
see tests/python/mooncake_test.py). What is not:

* ``setup`` connects to Larder nodes: to LARDER_ENDPOINTS where that is set, else to ``master_server_addr``. There is no
  master and no segment to mount, so what else it takes (metadata server, segment and buffer sizes, protocol, devices) is
  not used: nodes own the memory, and the transport is found out. LARDER_* variables hold as for every client.
* Values are verified when they are read: one that does not verify is not found.
* Values don't change. ``upsert`` and its kin are refused with UNAVAILABLE_IN_CURRENT_MODE: readers of a cache must never
  see two values under one key. Remove the key first, or use another.
* ``remove`` needs no ``force``: there are no leases. ``remove_by_regex`` is refused: nodes know hashes of keys only.
* Blocks may be evicted at any time; ``replica_num`` and pins of ReplicateConfig are for the operator of the nodes to say.
* Keys may have any characters.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from larder_kv._client import Client, Namespace, hash_link
from larder_kv._enums import Outcome, Presence, PutState
from larder_kv._errors import Error
from larder_kv._native import Extents

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["BufferHandle", "ErrorCode", "MooncakeDistributedStore", "ReplicateConfig"]

_log = logging.getLogger(__name__)

# A key's value is block 0 of its hash; block 1 has its size, for readers that don't know it.
_VALUE, _SIZE = 0, 1
_SIZE_BYTES = 8


class ErrorCode(enum.IntEnum):
    """The codes of Mooncake's store that are returned here."""

    OK = 0
    INTERNAL_ERROR = -1
    NO_AVAILABLE_HANDLE = -200
    INVALID_PARAMS = -600
    OBJECT_NOT_FOUND = -704
    TRANSFER_FAIL = -800
    RPC_FAIL = -900
    UNAVAILABLE_IN_CURRENT_MODE = -1011


@dataclasses.dataclass
class ReplicateConfig:
    """Taken so that callers need not change; the nodes' operator decides about copies and pins."""

    replica_num: int = 1
    with_hard_pin: bool = False
    preferred_segment: str = ""
    preferred_segments: list[str] = dataclasses.field(default_factory=list)
    prefer_alloc_in_same_node: bool = False


class BufferHandle:
    """A value that was read; supports the buffer protocol through `memoryview(handle.view())`, `bytes(handle)`."""

    def __init__(self, content: bytearray) -> None:
        self._content = content
        self._extents = Extents.of([content])

    def ptr(self) -> int:
        """Address of the first byte."""
        return self._extents.address(0)

    def size(self) -> int:
        """Bytes."""
        return len(self._content)

    def view(self) -> memoryview:
        """The bytes, without a copy."""
        return memoryview(self._content)

    def __bytes__(self) -> bytes:
        return bytes(self._content)

    def __buffer__(self, flags: int) -> memoryview:  # from Python 3.12 on
        return memoryview(self._content)

    def __len__(self) -> int:
        return len(self._content)


_PUT_CODES = {
    PutState.FULL: ErrorCode.NO_AVAILABLE_HANDLE,
    PutState.OVER_QUOTA: ErrorCode.NO_AVAILABLE_HANDLE,
    PutState.INVALID: ErrorCode.INVALID_PARAMS,
    PutState.CORRUPT: ErrorCode.TRANSFER_FAIL,
    PutState.EXPIRED: ErrorCode.TRANSFER_FAIL,
}


def _code_of_put(state: int) -> int:
    if PutState(state).there:
        return ErrorCode.OK
    return _PUT_CODES.get(PutState(state), ErrorCode.RPC_FAIL)


def _code_of_miss(outcome: int, reason: int) -> int:
    if outcome == Outcome.OUT_OF_TIME or reason in (Presence.TIMED_OUT, Presence.UNREACHABLE, Presence.BUSY):
        return ErrorCode.RPC_FAIL
    return ErrorCode.OBJECT_NOT_FOUND


def _hash(key: str) -> bytes:
    return hash_link(None, key.encode())


class MooncakeDistributedStore:
    """A store of values by name. Calls may come from any thread; none raises for what a node or the network does."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._space: Namespace | None = None
        self._hostname = ""
        self._registered: set[int] = set()

    # --- life

    def setup(
        self,
        local_hostname: str | Mapping[str, Any] = "",
        metadata_server: str = "",
        global_segment_size: int = 16 << 20,
        local_buffer_size: int = 16 << 20,
        protocol: str = "tcp",
        rdma_devices: str = "",
        master_server_addr: str = "",
        engine: object = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        enable_client_http_server: bool = False,
        client_http_port: int = 9300,
        *,
        config: Mapping[str, Any] | None = None,
    ) -> int:
        """Connects; 0, or INVALID_PARAMS, or INTERNAL_ERROR when no node answers. A mapping may have the same names."""
        if config is None and isinstance(local_hostname, Mapping):
            config = local_hostname
        if config is not None:
            if "local_hostname" not in config or "metadata_server" not in config:
                return ErrorCode.INVALID_PARAMS
            local_hostname = str(config["local_hostname"])
            master_server_addr = str(config.get("master_server_addr", ""))
            tenant_id = str(config.get("tenant_id", "default"))
        endpoints = os.environ.get("LARDER_ENDPOINTS") or master_server_addr
        if not endpoints:
            return ErrorCode.INVALID_PARAMS
        self.close()
        try:
            client = Client(endpoints, name=f"mooncake {local_hostname}")
        except Error as error:
            _log.error("no Larder node at %s: %s", endpoints, error)
            return ErrorCode.INTERNAL_ERROR
        self._client = client
        self._space = client.namespace({"kind": "opaque", "model": "mooncake"}, tenant_id)
        self._hostname = str(local_hostname)
        return ErrorCode.OK

    def close(self) -> int:
        """Lets go of everything; values stay in the nodes."""
        client, self._client, self._space = self._client, None, None
        if client is not None:
            client.close()
        self._registered.clear()
        return ErrorCode.OK

    def health_check(self) -> int:
        """0 healthy, 1 not set up or closed, 2 when no node answers."""
        if self._client is None:
            return 1
        try:
            self._client.ping()
        except Error:
            return 2
        return 0

    def get_hostname(self) -> str:
        """As given to `setup`."""
        return self._hostname

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Makes memory known to transports that gain by it."""
        if self._client is None or buffer_ptr in self._registered:
            return ErrorCode.INVALID_PARAMS
        try:
            self._client.register(buffer_ptr, size)
        except Error:
            return ErrorCode.INVALID_PARAMS
        self._registered.add(buffer_ptr)
        return ErrorCode.OK

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """After it the memory may go."""
        if self._client is None or buffer_ptr not in self._registered:
            return ErrorCode.INVALID_PARAMS
        self._registered.discard(buffer_ptr)
        self._client.unregister(buffer_ptr)
        return ErrorCode.OK

    # --- put

    def put(self, key: str, value: Buffer, config: ReplicateConfig | None = None) -> int:
        """Stores a value that is not there yet; 0 also when one is."""
        return self.put_batch([key], [value], config)

    def put_parts(self, key: str, *args: Buffer, config: ReplicateConfig | None = None) -> int:
        """The parts one behind the other are the value."""
        return self.put_batch([key], [b"".join(memoryview(part) for part in args)], config)

    def put_batch(self, keys: list[str], values: Sequence[Buffer], config: ReplicateConfig | None = None) -> int:
        """0 when every value is there now, else the first code that is none."""
        views = [memoryview(value) for value in values]
        if len(keys) != len(views) or not all(view.nbytes for view in views) or not all(keys):
            return ErrorCode.INVALID_PARAMS
        codes = self._put(keys, [[view] for view in views], [view.nbytes for view in views])
        return next((code for code in codes if code != 0), ErrorCode.OK)

    def put_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig | None = None) -> int:
        """Out of memory by address."""
        return self.batch_put_from([key], [buffer_ptr], [size], config)[0]

    def batch_put_from(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int], config: ReplicateConfig | None = None
    ) -> list[int]:
        """A code for each key."""
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [ErrorCode.INVALID_PARAMS] * len(keys)
        return self._put_from(keys, [[address] for address in buffer_ptrs], [[size] for size in sizes])

    def batch_put_from_multi_buffers(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        config: ReplicateConfig | None = None,
    ) -> list[int]:
        """Each value out of several pieces of memory; a code for each key."""
        return self._in_pieces(self._put_from, keys, all_buffer_ptrs, all_sizes)

    def _in_pieces(
        self,
        move: Callable[[list[str], list[list[int]], list[list[int]]], list[int]],
        keys: list[str],
        places: list[list[int]],
        sizes: list[list[int]],
    ) -> list[int]:
        """Moves those values whose pieces have an address and a size each."""
        if not len(keys) == len(places) == len(sizes):
            return [ErrorCode.INVALID_PARAMS] * len(keys)
        codes = [
            ErrorCode.OK if len(its_places) == len(its_sizes) != 0 else ErrorCode.INVALID_PARAMS
            for its_places, its_sizes in zip(places, sizes)
        ]
        return self._only(codes, move, keys, places, sizes)

    def _put_from(self, keys: list[str], places: list[list[int]], sizes: list[list[int]]) -> list[int]:
        totals = [sum(each) for each in sizes]
        codes: list[int] = [ErrorCode.OK] * len(keys)  # as in Mooncake, a value of no bytes is taken and not there
        full = [index for index, total in enumerate(totals) if total]
        memory = Extents.ragged([places[index] for index in full], [sizes[index] for index in full])
        done = self._put([keys[index] for index in full], memory, [totals[index] for index in full])
        for index, code in zip(full, done):
            codes[index] = code
        return codes

    # --- get

    def get(self, key: str) -> bytes:
        """The value; nothing when it is not there."""
        return self.get_batch([key])[0]

    def get_batch(self, keys: list[str]) -> list[bytes]:
        """The values; nothing for those that are not there."""
        return [b"" if content is None else bytes(content) for content in self._read(keys)]

    def get_buffer(self, key: str) -> BufferHandle | None:
        """The value in memory of its own."""
        return self.batch_get_buffer([key])[0]

    def batch_get_buffer(self, keys: list[str]) -> list[BufferHandle | None]:
        """The values in memory of their own."""
        return [None if content is None else BufferHandle(content) for content in self._read(keys)]

    def get_size(self, key: str) -> int:
        """Bytes of the value, or a code."""
        return self._sizes([_hash(key)])[0]

    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        """Bytes that were read, or a code."""
        return self.batch_get_into([key], [buffer_ptr], [size])[0]

    def batch_get_into(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]:
        """Bytes that were read for each key, or a code. Memory may be larger than the value."""
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            return [ErrorCode.INVALID_PARAMS] * len(keys)
        return self._get_into(keys, [[address] for address in buffer_ptrs], [[size] for size in sizes], True)

    def batch_get_into_multi_buffers(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        prefer_alloc_in_same_node: bool = False,
    ) -> list[int]:
        """The same with several pieces of memory for each value, which must fit it exactly."""
        return self._in_pieces(self._get_into_fitting, keys, all_buffer_ptrs, all_sizes)

    # --- keys

    def is_exist(self, key: str) -> int:
        """1, 0, or a code."""
        return self.batch_is_exist([key])[0]

    def batch_is_exist(self, keys: list[str]) -> list[int]:
        """1, 0, or a code for each."""
        if self._space is None:
            return [ErrorCode.INTERNAL_ERROR] * len(keys)
        if not keys:
            return []
        try:
            presence = self._space.match([_hash(key) for key in keys]).presence
        except Error:
            return [ErrorCode.RPC_FAIL] * len(keys)
        unheard = (Presence.UNREACHABLE, Presence.TIMED_OUT)
        return [1 if each < 64 else ErrorCode.RPC_FAIL if each in unheard else 0 for each in presence]

    def remove(self, key: str, force: bool = False) -> int:
        """0, or OBJECT_NOT_FOUND."""
        return self.batch_remove([key], force)[0]

    def batch_remove(self, keys: list[str], force: bool = False) -> list[int]:
        """The same for each."""
        if self._space is None:
            return [ErrorCode.INTERNAL_ERROR] * len(keys)
        codes: list[int] = []
        for key in keys:
            try:
                gone = self._space.remove([_hash(key)], groups=[_VALUE, _SIZE])
                codes.append(ErrorCode.OK if gone else ErrorCode.OBJECT_NOT_FOUND)
            except Error:
                codes.append(ErrorCode.RPC_FAIL)
        return codes

    def remove_all(self, force: bool = False) -> int:
        """How many values were removed, or a code."""
        if self._space is None:
            return ErrorCode.INTERNAL_ERROR
        try:
            return (self._space.clear() + 1) // 2
        except Error:
            return ErrorCode.RPC_FAIL

    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        """Refused: nodes know hashes of keys only."""
        return self._refuse("remove_by_regex", "nodes know hashes of keys, no names")

    def upsert(self, key: str, value: Buffer, config: ReplicateConfig | None = None) -> int:
        """Refused: values don't change."""
        return self._refuse_change("upsert")

    def upsert_batch(self, keys: list[str], values: Sequence[Buffer], config: ReplicateConfig | None = None) -> int:
        """Refused: values don't change."""
        return self._refuse_change("upsert_batch")

    def upsert_parts(self, key: str, *args: Buffer, config: ReplicateConfig | None = None) -> int:
        """Refused: values don't change."""
        return self._refuse_change("upsert_parts")

    def upsert_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig | None = None) -> int:
        """Refused: values don't change."""
        return self._refuse_change("upsert_from")

    def batch_upsert_from(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int], config: ReplicateConfig | None = None
    ) -> list[int]:
        """Refused: values don't change."""
        return [self._refuse_change("batch_upsert_from")] * len(keys)

    # --- how

    def _refuse_change(self, name: str) -> int:
        return self._refuse(name, "values of a cache don't change: remove the key first, or use another one")

    def _refuse(self, name: str, why: str) -> int:
        _log.warning("%s is refused: %s", name, why)
        return ErrorCode.UNAVAILABLE_IN_CURRENT_MODE

    def _only(self, codes: Sequence[int], work: Callable[..., list[int]], keys: list[str], *lists: list[Any]) -> list[int]:
        """Does `work` for those whose code is 0."""
        good = [index for index, code in enumerate(codes) if code == 0]
        if len(good) == len(codes):
            return work(keys, *lists)
        done = work([keys[index] for index in good], *[[each[index] for index in good] for each in lists])
        result = list(codes)
        for index, code in zip(good, done):
            result[index] = code
        return result

    def _put(self, keys: list[str], values: Any, sizes: list[int]) -> list[int]:
        if self._space is None:
            return [ErrorCode.INTERNAL_ERROR] * len(keys)
        if not all(keys):
            return [ErrorCode.INVALID_PARAMS] * len(keys)
        if not keys:
            return []
        hashes = [_hash(key) for key in keys]
        try:
            put = self._space.put(hashes, values, groups=_VALUE)
            # A value that was there before keeps its size, unless only that was evicted.
            stored = [index for index, state in enumerate(put.states) if state == PutState.STORED]
            if stored:
                lengths = [sizes[index].to_bytes(_SIZE_BYTES, "little") for index in stored]
                self._space.put([hashes[index] for index in stored], lengths, groups=_SIZE)
        except Error as error:
            _log.warning("put of %d keys: %s", len(keys), error)
            return [ErrorCode.RPC_FAIL] * len(keys)
        return [_code_of_put(state) for state in put.states]

    def _sizes(self, hashes: list[bytes]) -> list[int]:
        """Bytes of values, or codes."""
        if self._space is None:
            return [ErrorCode.INTERNAL_ERROR] * len(hashes)
        if not hashes:
            return []
        landed = bytearray(_SIZE_BYTES * len(hashes))
        view = memoryview(landed)
        try:
            got = self._space.get(
                hashes, [view[at : at + _SIZE_BYTES] for at in range(0, len(landed), _SIZE_BYTES)], groups=_SIZE
            )
        except Error:
            return [ErrorCode.RPC_FAIL] * len(hashes)
        return [
            int.from_bytes(view[index * _SIZE_BYTES : (index + 1) * _SIZE_BYTES], "little")
            if outcome == Outcome.HIT
            else _code_of_miss(outcome, got.reasons[index])
            for index, outcome in enumerate(got.outcomes)
        ]

    def _read(self, keys: list[str]) -> list[bytearray | None]:
        found: list[bytearray | None] = [None] * len(keys)
        if self._space is None:
            return found
        hashes = [_hash(key) for key in keys]
        wanted = [(index, size) for index, size in enumerate(self._sizes(hashes)) if size > 0]
        if not wanted:
            return found
        contents = [bytearray(size) for _, size in wanted]
        try:
            got = self._space.get([hashes[index] for index, _ in wanted], contents, groups=_VALUE)
        except Error as error:
            _log.warning("get of %d keys: %s", len(keys), error)
            return found
        for (index, _), content, outcome in zip(wanted, contents, got.outcomes):
            if outcome == Outcome.HIT:
                found[index] = content
        return found

    def _get_into_fitting(self, keys: list[str], places: list[list[int]], sizes: list[list[int]]) -> list[int]:
        return self._get_into(keys, places, sizes, False)

    def _get_into(self, keys: list[str], places: list[list[int]], sizes: list[list[int]], larger: bool) -> list[int]:
        """First as if every value filled its memory, which is the rule; the sizes of the others are asked for."""
        if self._space is None:
            return [ErrorCode.INTERNAL_ERROR] * len(keys)
        if not keys:
            return []
        hashes = [_hash(key) for key in keys]
        try:
            codes, refused = self._get_exactly(hashes, places, sizes, list(range(len(keys))))
            if not refused:
                return codes
            again: list[int] = []
            for index, size in zip(refused, self._sizes([hashes[index] for index in refused])):
                room = sum(sizes[index])
                if size < 0:
                    codes[index] = size
                elif size > room:
                    codes[index] = ErrorCode.INVALID_PARAMS
                elif not larger:
                    codes[index] = ErrorCode.TRANSFER_FAIL
                else:
                    again.append(index)
                    sizes[index] = [size]
            if again:
                second, _ = self._get_exactly(hashes, places, sizes, again)
                for index in again:
                    codes[index] = second[index]
            return codes
        except Error as error:
            _log.warning("get of %d keys: %s", len(keys), error)
            return [ErrorCode.RPC_FAIL] * len(keys)

    def _get_exactly(
        self, hashes: list[bytes], places: list[list[int]], sizes: list[list[int]], at: list[int]
    ) -> tuple[list[int], list[int]]:
        """Bytes or codes by index, and the indices of values that are of another size."""
        assert self._space is not None
        codes: list[int] = [ErrorCode.OK] * len(hashes)
        refused = [index for index in at if sum(sizes[index]) == 0]
        asked = [index for index in at if sum(sizes[index]) != 0]
        if asked:
            memory = Extents.ragged([places[index] for index in asked], [sizes[index] for index in asked])
            got = self._space.get([hashes[index] for index in asked], memory, groups=_VALUE)
            for index, outcome, reason, size in zip(asked, got.outcomes, got.reasons, got.sizes):
                if outcome == Outcome.HIT:
                    codes[index] = size
                else:
                    codes[index] = _code_of_miss(outcome, reason)
                    if outcome == Outcome.REFUSED:
                        refused.append(index)
        return codes, refused
