"""How the engine cases tell what they do."""
import time
import unittest


class Result(unittest.TextTestResult):
    """Says how long each case took, and at once what is wrong."""

    def addFailure(self, test, err):  # noqa: N802
        super().addFailure(test, err)
        self.stream.writeln(self.failures[-1][1])
        self.stream.flush()

    def addError(self, test, err):  # noqa: N802
        super().addError(test, err)
        self.stream.writeln(self.errors[-1][1])

    def printErrors(self):  # noqa: N802
        pass

    def startTest(self, test):  # noqa: N802
        self._began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):  # noqa: N802
        self.stream.writeln(f"    {time.monotonic() - self._began:.0f} s")
        super().stopTest(test)
