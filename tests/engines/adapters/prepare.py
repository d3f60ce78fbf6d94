#!/usr/bin/env python3
"""Makes what the tests of the adapters run in: SGLang and LMCache beside the environment of the engine tests.

    tests/engines/adapters/prepare.py FOLDER ENGINES     FOLDER is build/adapters, ENGINES what tests/engines/prepare.py made

torch, numpy and larder_kv are seen where they are, in ENGINES. What is there already and fits is used again.

Exit code 77: PyPI can't be reached and there is no environment yet.
"""

import hashlib
import pathlib
import shutil
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from pip_environment import SKIPPED, reach_pypi, run  # noqa: E402

REQUIREMENTS = HERE / "requirements.txt"


def main():
    folder, engines = (pathlib.Path(name).resolve() for name in sys.argv[1:3])
    stamp, environment = folder / "venv.stamp", folder / "venv"
    wanted = hashlib.sha256(f"{sys.version} {engines}\n".encode() + REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not reach_pypi():
        print("PyPI can't be reached, so there is no SGLang and no LMCache to test with")
        raise SystemExit(SKIPPED)
    shutil.rmtree(environment, ignore_errors=True)
    venv.create(environment, with_pip=False)
    pip = (engines / "venv/bin/python", "-m", "pip", "--disable-pip-version-check", "--python", environment)
    run(*pip, "install", "-q", "--no-deps", "-r", REQUIREMENTS)
    packages, theirs = (next(each.glob("lib/python3*/site-packages")) for each in (environment, engines / "venv"))
    (packages / "engines.pth").write_text(f"{theirs}\n")
    stamp.write_text(wanted)


if __name__ == "__main__":
    main()
