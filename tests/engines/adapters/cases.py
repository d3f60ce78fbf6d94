#!/usr/bin/env python3
"""Runs the tests of the adapters; the last line is `N passed, N failed, N skipped`."""

import logging
import os
import pathlib
import sys
import unittest
import warnings

os.environ.update({"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"})
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
logging.getLogger().addHandler(logging.NullHandler())  # what engines say; tests listen to what they are about
warnings.simplefilter("ignore")  # of what the engines import


def main(names):
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names or ["sglang_test", "lmcache_test"])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, warnings="ignore").run(suite)
    for test, _ in result.failures + result.errors:  # once more, undisturbed by lines of the engines
        print(f"{test} ... FAIL")
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
