#!/usr/bin/env python3
"""Counts the cases of a ctest JUnit file: prints `passed failed skipped`, names the latter two in a file.

    tests/count_cases.py JUNIT.xml NAMED.txt
"""
import re
import sys
import xml.etree.ElementTree


def reason(case):
    """What a skipped test said: the line after gtest's, the text of Python's, or the attribute that ctest gives."""
    output = case.findtext("system-out") or ""
    lines = [line.strip() for line in output.splitlines()]
    for at, line in enumerate(lines):
        if re.search(r": Skipped$", line) and at + 1 < len(lines):
            return lines[at + 1]
        if match := re.search(r"\.\.\. skipped ['\"](.*)['\"]$", line):
            return match.group(1)
    skipped = case.find("skipped")
    return skipped.get("message", "no reason given") if skipped is not None else "not run"


def last_words(case, lines=12):
    """The end of what a failed test printed: whoever sees only the summary has this to go by."""
    output = case.findtext("system-out") or ""
    return [line.rstrip()[:300] for line in output.splitlines() if line.strip()][-lines:]


def name(case):
    """Without the bytes of its parameter, which CMake adds for whoever reads bytes."""
    return case.get("name").split("  # GetParam()")[0]


def main(junit, named):
    cases = xml.etree.ElementTree.parse(junit).getroot().iter("testcase")
    counts = {"run": 0, "fail": 0, "skipped": 0}
    with open(named, "w", encoding="utf-8") as out:
        for case in cases:
            status = case.get("status")
            if status == "run":
                counts["run"] += 1
            elif status == "fail":
                counts["fail"] += 1
                print(f"FAILED  {name(case)}", *last_words(case), sep="\n            ", file=out)
            else:  # notrun, disabled, skipped
                counts["skipped"] += 1
                print(f"SKIPPED {name(case)}: {reason(case)}", file=out)
    print(counts["run"], counts["fail"], counts["skipped"])


if __name__ == "__main__":
    main(*sys.argv[1:])
