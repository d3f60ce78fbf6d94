"""A digest of weights by their content: a path, a name or a branch says nothing about what is in a file."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import pathlib

from larder_kv.engine.model import UnservedError

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
STRETCH_BYTES = 64 << 20  # the digest is a tree of such stretches, so that several threads can work on one file
KEEP_BYTES = 1 << 30  # from so many bytes on, digests are kept in a file: they take seconds
THREADS = 8

_known: dict[str, str] = {}


def _stretch(path: pathlib.Path, begin: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return hashlib.sha256(file.read(STRETCH_BYTES)).digest()


def _stamp(path: pathlib.Path) -> str:
    """Changes whenever the content does: the kernel sets ctime and nobody can put it back."""
    stat = path.stat()
    return f"{stat.st_dev}/{stat.st_ino}/{stat.st_size}/{stat.st_mtime_ns}/{stat.st_ctime_ns}"


def _kept() -> pathlib.Path:
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "larder" / "weights.json"


def _recall() -> dict[str, str]:
    try:
        found = json.loads(_kept().read_text())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _keep(stamp: str, digest: str) -> None:
    """Losing a race against another process only means that it is computed again."""
    try:
        path = _kept()
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps({**_recall(), stamp: digest}))
        scratch.replace(path)
    except OSError:
        pass


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The weights in a folder, without duplicates in older formats."""
    found = sorted(path for path in folder.iterdir() if path.suffix in WEIGHTS and path.is_file())
    tensors = [path for path in found if path.suffix == ".safetensors"]
    return tensors or found


def _stamp_of(paths: list[pathlib.Path]) -> str:
    return hashlib.sha256("\n".join(f"{path.name} {_stamp(path)}" for path in paths).encode()).hexdigest()


def digest_files(paths: list[pathlib.Path]) -> str:
    """SHA-256 over names, sizes and stretches of all bytes, as hexadecimal text."""
    stamp = _stamp_of(paths)
    large = sum(path.stat().st_size for path in paths) >= KEEP_BYTES
    known = _known.get(stamp) or (_recall().get(stamp) if large else None)
    if known is None:
        total = hashlib.sha256(b"larder weights 1\n")
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            for path in paths:
                size = path.stat().st_size
                total.update(f"{path.name} {size}\n".encode())
                for part in pool.map(lambda begin, path=path: _stretch(path, begin), range(0, size, STRETCH_BYTES)):
                    total.update(part)
        known = total.hexdigest()
        if large:
            _keep(stamp, known)
    _known[stamp] = known
    return known


def locate(model: str, revision: str | None = None) -> str:
    """Where the weights of a folder or a Hugging Face name are on this machine. UnservedError when they are not."""
    if pathlib.Path(model).exists():
        return model
    try:
        from huggingface_hub import snapshot_download  # type: ignore[import-not-found,unused-ignore]

        return str(snapshot_download(model, revision=revision, local_files_only=True))
    except Exception as error:
        raise UnservedError(
            f"the weights of {model} are not on this machine, so that nobody can say which they are: load the model "
            "from a local folder or from Hugging Face's cache"
        ) from error


def _find(location: str) -> list[pathlib.Path]:
    path = pathlib.Path(location)
    found = [path] if path.is_file() else files(path) if path.is_dir() else []
    if not found:
        raise FileNotFoundError(f"{location} has no weights ({', '.join(WEIGHTS)})")
    return found


def digest(location: str) -> str:
    """Of a folder or a single file. FileNotFoundError when there are no weights."""
    return digest_files(_find(location))


def stamp(location: str) -> str:
    """Changes whenever the digest may have changed, and costs no reading. FileNotFoundError like digest."""
    return _stamp_of(_find(location))


def adapter_digest(folder: str) -> str:
    """Of a LoRA adapter: its configuration too, where the scale is that its tensors are applied with."""
    total = hashlib.sha256(digest(folder).encode())
    config = pathlib.Path(folder) / "adapter_config.json"
    if config.is_file():
        total.update(config.read_bytes())
    return total.hexdigest()
