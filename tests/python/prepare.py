#!/usr/bin/env python3
"""Makes what the Python tests run in: a virtual environment with the wheel as it would be published.

    tests/python/prepare.py FOLDER BUILD     FOLDER is for the environment; what is there already and fits is used again

BUILD is for the extension: as deep in the tree as other builds, so that ccache has the client library already.
The wheel is built by pip as anybody would, put right by auditwheel, and checked: it runs where glibc is 2.34 (RHEL 9,
older than Debian 12), and shows nothing but its entry point.

Exit code 77, and a file `skipped` in FOLDER: PyPI can't be reached and there is no environment yet.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from pip_environment import SKIPPED, reach_pypi, run  # noqa: E402

SOURCES = ("CMakeLists.txt", "client", "proto", "transport", "tests/pip_environment.py",
           "tests/python/prepare.py", "tests/python/requirements.txt")
PLATFORM = "manylinux_2_34_x86_64"


def digest():
    """Of everything that the environment is made of."""
    total = hashlib.sha256(sys.version.encode())
    for name in SOURCES:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def check(wheel, folder):
    """What the extension shows and needs."""
    unpacked = folder / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    shutil.unpack_archive(wheel, unpacked, "zip")
    extension = next((unpacked / "larder_kv").glob("_native*.so"))
    symbols = subprocess.run(["nm", "-D", "--defined-only", "-j", extension], check=True, capture_output=True, text=True)
    if symbols.stdout.split() != ["PyInit__native"]:
        raise SystemExit(f"the extension shows more than its entry point: {symbols.stdout}")
    needed = subprocess.run(["readelf", "-d", extension], check=True, capture_output=True, text=True).stdout
    for foreign in ("libstdc++", "libcrypto", "libcuda", "libucp", "libxxhash"):
        if foreign in needed:
            raise SystemExit(f"the extension needs {foreign} from its host")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    stamp = folder / "stamp"
    wanted = digest()
    if stamp.exists() and stamp.read_text() == wanted:
        print("the environment is as it should be")
        return
    build = pathlib.Path(sys.argv[2]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(build, ignore_errors=True)  # what pip built with is gone
    folder.mkdir(parents=True)
    if not reach_pypi():
        print("PyPI can't be reached, so there is no wheel to test")
        (folder / "skipped").touch()
        raise SystemExit(SKIPPED)
    environment = folder / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]
    run(*pip, "install", "-r", ROOT / "tests/python/requirements.txt")
    run(*pip, "wheel", "--no-deps", "-w", folder / "built", "-C", f"build-dir={build}", ROOT / "client/python")
    with_tools = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    built = next((folder / "built").glob("*.whl"))
    run(environment / "bin/auditwheel", "repair", "--plat", PLATFORM, "-w", folder / "wheel", built, env=with_tools)
    wheel = next((folder / "wheel").glob("*.whl"))
    check(wheel, folder)
    run(*pip, "install", "--no-deps", wheel)
    stamp.write_text(wanted)


if __name__ == "__main__":
    main()
