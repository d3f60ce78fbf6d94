"""What the environments of the Python and the engine tests have in common: both are made once, from PyPI."""
import subprocess
import sys
import urllib.request

SKIPPED = 77  # exit code: PyPI can't be reached and there is no environment yet


def run(*argv, **more):
    print("+", *argv, flush=True)
    subprocess.run([str(word) for word in argv], check=True, **more)


def reach_pypi():
    """Whether pip has a chance: PyPI answers, or another index is configured."""
    try:
        urllib.request.urlopen("https://pypi.org/simple/pip/", timeout=20).close()
        return True
    except OSError:
        configured = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, check=False
        )
        return configured.returncode == 0  # a mirror: let pip find out
