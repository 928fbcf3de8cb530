#!/usr/bin/env python3
"""The manual page of the command: mandoc finds no fault in it, and it holds every line that the command says of itself
and every variable of the environment that the library reads. Skipped (exit status 77) where there is no mandoc.
Usage: manual_test.py CLATTN PAGE SOURCE_FOLDER"""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

COMMAND, PAGE, SOURCE = sys.argv[1:]


def said(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = re.sub(".\b", "", said("mandoc", "-T", "ascii", "-O", "width=200", PAGE)) # bold is struck twice
        cls.lines = {line.strip() for line in text.splitlines()}

    def test_lint(self):
        words = ["mandoc", "-T", "lint", "-W", "warning", PAGE]
        lint = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual((lint.returncode, lint.stdout), (0, ""))

    def test_every_line_of_help(self):
        whole = said(COMMAND, "--help")
        names = re.findall(r"^  (\w+)  +\S", whole, re.MULTILINE)
        self.assertLessEqual({"info", "run", "check", "bench", "tune"}, set(names))
        for text in (whole.split("\n", 1)[1], *(said(COMMAND, name, "--help") for name in names)):
            for line in text.splitlines():
                self.assertIn(line.strip(), self.lines)

    def test_environment(self):
        read = set()
        for file in pathlib.Path(SOURCE, "src").glob("*.c"):
            read |= set(re.findall(r'environment\(.*"(CLATTN_\w+)"\)', file.read_text(encoding="utf-8")))
        self.assertIn("CLATTN_CAPS", read)
        self.assertLessEqual(read, self.lines)


if __name__ == "__main__":
    if not shutil.which("mandoc"):
        print("no mandoc here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
