#!/usr/bin/env python3
"""The reference of the public headers is made without a warning of Doxygen's, and not without where something public is
not described. Skipped (exit status 77) where there is no Doxygen.
Usage: doxygen_test.py DOXYFILE"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

DESCRIBED = """/* A header. */
/* One. */
#define CLATTN_ONE 1

/* Sizes of a thing. */
typedef struct clattn_thing {
    int a, b; /* both */
    int c;
} clattn_thing;

/* The thing's call. */
CLATTN_API int clattn_call(clattn_thing *thing);
"""
# What is changed of it, and what Doxygen must then name.
FAULTS = {
    "a function": ("/* The thing's call. */\n", "CLATTN_API int clattn_other(int x);\n\n", "clattn_other"),
    "a struct": ("/* Sizes of a thing. */\n", "", "clattn_thing"),
    "a macro": ("/* One. */\n", "", "CLATTN_ONE"),
    "an enum": ("/* The thing's call. */\n", "typedef enum clattn_way { CLATTN_A = 1 } clattn_way;\n\n", "clattn_way"),
}
doxyfile = pathlib.Path(sys.argv.pop(1))


def made(folder, text=None):
    """What Doxygen says, of the project's own files or of a header of that text."""
    settings = f'{doxyfile.read_text(encoding="utf-8")}\nOUTPUT_DIRECTORY = "{folder}"\n'
    if text is not None:
        header = pathlib.Path(folder, "thing.h")
        header.write_text(text, encoding="utf-8")
        settings += f'INPUT = "{header}"\nUSE_MDFILE_AS_MAINPAGE =\n'
    return subprocess.run(["doxygen", "-"], input=settings, capture_output=True, text=True, check=False)


class Reference(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def page(self, name):
        return pathlib.Path(self.folder, "html", name).read_text(encoding="utf-8")

    def test_without_a_warning(self):
        run = made(self.folder)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("In a program", self.page("index.html"))
        self.assertIn("softcap", self.page("structclattn__attention__op.html"))

    def test_what_is_described(self):
        run = made(self.folder, DESCRIBED)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertEqual(self.page("structclattn__thing.html").count("both"), 2)

    def test_what_is_not(self):
        for name, (old, new, named) in FAULTS.items():
            with self.subTest(name):
                run = made(self.folder, DESCRIBED.replace(old, new))
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(named, run.stderr)


if __name__ == "__main__":
    if not shutil.which("doxygen"):
        print("no Doxygen here")
        sys.exit(77)
    unittest.main()
