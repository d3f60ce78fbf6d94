#!/usr/bin/env python3
"""Makes what the engine tests run in: vLLM for CPUs in a virtual environment of its own, larder_kv, and small models.

    tests/engines/prepare.py FOLDER     FOLDER is build/engines; what is there already and fits is used again

Exit code 77: PyPI can't be reached and there is no environment yet.
"""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from pip_environment import SKIPPED, reach_pypi, run  # noqa: E402


def digest(*names):
    total = hashlib.sha256(sys.version.encode())
    for name in names:
        total.update((HERE / name).read_bytes())
    return total.hexdigest()


def up_to_date(stamp, wanted):
    return stamp.exists() and stamp.read_text() == wanted


def pip_install(folder, *what):
    """Just this: what it needs is listed beside it."""
    pip = (folder / "venv/bin/python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "-q", "--no-deps", *what)


def environment(folder):
    """vLLM: its CPU build names a torch that PyPI does not have, so what fits is listed and nothing is resolved."""
    stamp, wanted = folder / "venv.stamp", digest("requirements.txt", "cuda_stubs.py")
    if up_to_date(stamp, wanted):
        return
    if not reach_pypi():
        print("PyPI can't be reached, so there is no vLLM to test with")
        raise SystemExit(SKIPPED)
    shutil.rmtree(folder / "venv", ignore_errors=True)
    venv.create(folder / "venv", with_pip=True)
    pip_install(folder, "-r", HERE / "requirements.txt")
    libraries = next((folder / "venv").glob("lib/python3*/site-packages/torch/lib"))
    run(folder / "venv/bin/python", HERE / "cuda_stubs.py", libraries)
    stamp.write_text(wanted)


def larder(folder):
    """The wheel that the Python tests check, made once for both."""
    python_tests = ROOT / "build/release/python-tests"
    try:
        run(sys.executable, ROOT / "tests/python/prepare.py", python_tests, ROOT / "build/release-wheel")
    except subprocess.CalledProcessError as error:
        raise SystemExit(SKIPPED if error.returncode == SKIPPED else 1) from None
    wheel = next((python_tests / "wheel").glob("*.whl"))
    stamp, wanted = folder / "larder.stamp", hashlib.sha256(wheel.read_bytes()).hexdigest()
    if not up_to_date(stamp, wanted):
        pip_install(folder, "--force-reinstall", wheel)
        stamp.write_text(wanted)


def make_models(folder):
    stamp, wanted = folder / "models.stamp", digest("models.py")
    if up_to_date(stamp, wanted):
        return
    for preset in ("tiny", "llama", "windowed"):
        run(folder / "venv/bin/python", HERE / "models.py", folder / "models" / preset, "--preset", preset)
    stamp.write_text(wanted)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    environment(folder)
    larder(folder)
    make_models(folder)


if __name__ == "__main__":
    main()
