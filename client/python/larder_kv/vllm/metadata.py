"""What scheduler and workers tell each other. Pickled where they are processes of their own."""

# mypy: ignore-errors
from __future__ import annotations

import dataclasses

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata


@dataclasses.dataclass
class Run:
    """Consecutive chunks of a group and the engine blocks that they are in: [chunks x blocks a chunk], -1 for a block whose
    bytes go nowhere."""

    group: int
    first_chunk: int
    keys: bytes
    blocks: list[int]
    constituents: bytes | None = None


@dataclasses.dataclass
class Job:
    """Chunks of one request to load or to store."""

    request: str
    space: tuple[str, int]  # LoRA digest and weights epoch: which namespace
    runs: list[Run]
    tokens: int
    deadline_ms: float
    waits: bool = False  # a load that this step's forward pass needs


@dataclasses.dataclass
class Promise:
    """Blocks of a request that the engine believes will be loaded."""

    request: str
    blocks: set[int]
    waits: bool


@dataclasses.dataclass
class StepMetadata(KVConnectorMetadata):
    loads: list[Job] = dataclasses.field(default_factory=list)
    stores: list[Job] = dataclasses.field(default_factory=list)
    fresh: set[int] = dataclasses.field(default_factory=set)  # blocks that are about to be written anew
    lost: list[Promise] = dataclasses.field(default_factory=list)  # promised, and no load is planned: report them
    idle: bool = False  # nothing is computed in this step


@dataclasses.dataclass
class Done:
    """How a job ended on one rank."""

    request: str
    tokens: int
    good: int  # chunks
    bad: int
    bytes: int
    took_ms: float
    unreached: bool = False  # some of it because nobody answered in time
    stored: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # (group, chunk) that are in Larder now


@dataclasses.dataclass
class WorkerReport(KVConnectorWorkerMetadata):
    loads: list[Done] = dataclasses.field(default_factory=list)
    stores: list[Done] = dataclasses.field(default_factory=list)
    off: str = ""

    def aggregate(self, other: WorkerReport) -> WorkerReport:
        return WorkerReport(self.loads + other.loads, self.stores + other.stores, self.off or other.off)
