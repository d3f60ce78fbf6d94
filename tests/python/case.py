#!/usr/bin/env python3
"""Runs one case inside what prepare.py made, or says that there is nothing to run it in.

    tests/python/case.py FOLDER SCRIPT CASE
"""
import os
import pathlib
import sys

SKIPPED = 77


def main(folder, script, case):
    if (pathlib.Path(folder) / "skipped").exists():
        print("PyPI can't be reached, so there is no wheel to test")
        raise SystemExit(SKIPPED)
    python = str(pathlib.Path(folder) / "venv/bin/python")
    os.execv(python, [python, script, case])


if __name__ == "__main__":
    main(*sys.argv[1:])
