"""The extension over ``larder.h``. Arguments stand in its order; ``larder_kv`` gives them names and defaults."""

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import Buffer as BufferObject

version: str

_Hashes = BufferObject | Sequence[BufferObject]
_Rectangle = tuple[int, int, int, int]
_Groups = Sequence[int | tuple[int, int]] | None

class Extents:
    """Where blocks lie in memory: made once, used in many calls."""

    @staticmethod
    def of(blocks: Iterable[Any], writable: bool = True) -> Extents:
        """One buffer, array or CPU tensor a block, or a list of them. Each must be contiguous; it is kept alive, and
        cannot be resized, as long as these Extents."""

    @staticmethod
    def at(addresses: Any, sizes: Any) -> Extents:
        """Addresses as an array of 64-bit integers [blocks] or [blocks, extents], or as lists. `sizes`: one number for
        all, one for each extent of a block, or one for each address. Nothing is kept alive."""

    @staticmethod
    def ragged(addresses: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> Extents:
        """The same as lists, for blocks of different numbers of extents."""

    def address(self, extent: int, /) -> int:
        """Of an extent, counted over all blocks."""

    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def writable(self) -> bool: ...

class MatchResult:
    """What a match found."""

    @property
    def usable(self) -> int:
        """Blocks of the longest prefix that every group can use."""

    @property
    def pin(self) -> int:
        """For `Client.release`; 0 when nothing was pinned."""

    @property
    def presence(self) -> bytes:
        """[block][group], a `Presence` each."""

    @property
    def bitmaps(self) -> list[bytes]:
        """For each group a bit a block, lowest first: it is there."""

    @property
    def estimates_us(self) -> list[int]:
        """For each block, microseconds until a get of it would end; 0 when unknown."""

    def __len__(self) -> int: ...

class GetResult:
    """Outcomes of a get, one a block."""

    @property
    def hits(self) -> int: ...
    @property
    def leading(self) -> int:
        """Hits before the first block that is none."""

    @property
    def outcomes(self) -> bytes:
        """An `Outcome` each."""

    @property
    def reasons(self) -> bytes:
        """A `Presence` each: the tier of a hit, else why not."""

    @property
    def sizes(self) -> list[int]:
        """Bytes of hits."""

    @property
    def created_ms(self) -> list[int]:
        """When hits were written, by the node's clock."""

    @property
    def writers(self) -> bytes:
        """Who wrote hits, 32 bytes each."""

    def __len__(self) -> int: ...

class PutResult:
    """Outcomes of a put, one a block."""

    @property
    def there(self) -> int:
        """Blocks that can be had now, whoever wrote them."""

    @property
    def states(self) -> bytes:
        """A `PutState` each."""

    @property
    def copies(self) -> list[int]:
        """Nodes that have it now."""

    @property
    def why(self) -> str:
        """Of the first block that is not there, for people."""

    def __len__(self) -> int: ...

class Buffer:
    """Transfer memory: moves without a copy over shm and RDMA. `memoryview(buffer)` and `numpy.frombuffer(buffer)` see it
    and keep it alive."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def address(self) -> int: ...

class Client:
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def stats(self) -> dict[str, Any]: ...
    def ping(self, node_id: str | None, deadline_us: int) -> int: ...
    def allocate(self, nbytes: int, /) -> Buffer: ...
    def register(self, address: int, nbytes: int, /) -> None: ...
    def unregister(self, address: int, /) -> None: ...
    def release(self, pin: int, /) -> None: ...
    def cancel(self, operation: int, all: bool, /) -> None: ...

class Completion:
    @property
    def token(self) -> Any: ...
    @property
    def operation(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def result(self) -> Any: ...

class Queue:
    def __init__(self, client: Client, /) -> None: ...
    def fileno(self) -> int: ...
    def poll(self, max: int, timeout_us: int, /) -> list[Completion]: ...
    def __len__(self) -> int: ...

class Namespace:
    @property
    def layers(self) -> int: ...
    @property
    def head_groups(self) -> int: ...
    @property
    def id(self) -> bytes: ...
    def match(
        self, hashes: _Hashes, groups: _Groups, rectangle: _Rectangle | None, pin_us: int, deadline_us: int, priority: int, /
    ) -> MatchResult: ...
    def wait(
        self, hashes: _Hashes, groups: _Groups, rectangle: _Rectangle | None, deadline_us: int, priority: int, /
    ) -> int: ...
    def prefetch(
        self, hashes: _Hashes, groups: _Groups, rectangle: _Rectangle | None, deadline_us: int, priority: int, /
    ) -> int: ...
    def get(self, hashes: _Hashes, into: Any, groups: Any, rectangles: Any, deadline_us: int, priority: int, /) -> GetResult: ...
    def put(
        self,
        hashes: _Hashes,
        blocks: Any,
        groups: Any,
        rectangles: Any,
        parts: Any,
        constituents: Any,
        first_depth: int,
        retention: int,
        deadline_us: int,
        priority: int,
        /,
    ) -> PutResult: ...
    def submit_match(
        self,
        queue: Queue,
        token: Any,
        hashes: _Hashes,
        groups: _Groups,
        rectangle: _Rectangle | None,
        pin_us: int,
        deadline_us: int,
        priority: int,
        /,
    ) -> int: ...
    def submit_wait(
        self,
        queue: Queue,
        token: Any,
        hashes: _Hashes,
        groups: _Groups,
        rectangle: _Rectangle | None,
        deadline_us: int,
        priority: int,
        /,
    ) -> int: ...
    def submit_prefetch(
        self,
        queue: Queue,
        token: Any,
        hashes: _Hashes,
        groups: _Groups,
        rectangle: _Rectangle | None,
        deadline_us: int,
        priority: int,
        /,
    ) -> int: ...
    def submit_get(
        self, queue: Queue, token: Any, hashes: _Hashes, into: Any, groups: Any, rectangles: Any, deadline_us: int, priority: int, /
    ) -> int: ...
    def submit_put(
        self,
        queue: Queue,
        token: Any,
        hashes: _Hashes,
        blocks: Any,
        groups: Any,
        rectangles: Any,
        parts: Any,
        constituents: Any,
        first_depth: int,
        retention: int,
        deadline_us: int,
        priority: int,
        /,
    ) -> int: ...
    def touch(self, hashes: _Hashes, groups: Any, usable: int, retention: int, /) -> None: ...
    def finish_turn(self, hashes: _Hashes, groups: Any, retention: int, /) -> None: ...
    def report(self, hashes: _Hashes, groups: Any, rectangle: _Rectangle | None, /) -> None: ...
    def remove(self, hashes: _Hashes, groups: Any, deadline_us: int, /) -> int: ...
    def clear(self, deadline_us: int, /) -> int: ...

def open(
    endpoints: str | None,
    config_file: str | None,
    transport: str | None,
    token: str | None,
    name: str | None,
    reopen: bool,
    environment: bool,
    numbers: dict[str, int],
) -> Client: ...
def open_namespace(client: Client, identity: str, tenant: str | None, salt: bytes) -> Namespace: ...
def hash_tokens(tokens: Iterable[int], block_tokens: int, /) -> bytes: ...
def hash_link(parent: bytes | None, content: BufferObject) -> bytes: ...
