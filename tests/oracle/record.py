"""A runner of unittest that appends a line for each test to the file that GATUN_RAN names, as scripts/record-tests does."""

import os
import sys
import unittest

RAN = os.environ.get("GATUN_RAN")


class Result(unittest.TextTestResult):
    def record(self, result, test, why=""):
        if RAN:
            file = os.path.splitext(os.path.basename(sys.modules[type(test).__module__].__file__))[0]
            with open(RAN, "a", encoding="utf-8") as out:
                out.write("\t".join([result, "tests/oracle", file, test.id().rsplit(".", 1)[-1], why]) + "\n")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.record("ok", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.record("failed", test)

    def addError(self, test, err):
        super().addError(test, err)
        self.record("failed", test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.record("failed", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.record("skipped", test, reason)


def main(module="__main__"):
    unittest.main(module=module, testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Result))
