#!/usr/bin/env python3
"""Compiles a program of programs.def for this machine's processor, with the models in the place of the back-ends, to an
object file whose one function is pipeline_<name>. Usage: compile.py CLANG NAME OBJECT"""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tools"))
from expand_cl import expand  # pylint: disable=wrong-import-position

MODELS = {"TILE_BACKEND": "../../tests/pipeline/tile_model", "STAGE_BACKEND": "../../tests/pipeline/stage_model"}


def rows():
    """Of programs.def by name: PROGRAM or MUTANT, and the other fields."""
    text = re.sub(r"/\*.*?\*/", "", (HERE / "programs.def").read_text(), flags=re.S)
    table, kind, fields = {}, "", None
    for string, mark, word in re.findall(r'"((?:[^"\\]|\\.)*)"|([(),])|(\w+)', text):
        if mark == "(":
            fields = [""]
        elif mark == ",":
            fields.append("")
        elif mark == ")":
            table[fields[0]] = kind, fields[1:]
            fields = None
        elif fields is None:
            kind = word
        else:
            fields[-1] += word or string.replace("\\n", "\n")
    return table


def source_of(name):
    """The text, the kernel and the options."""
    kind, fields = rows()[name]
    if kind == "PROGRAM":
        kernel, options = fields
        return expand(kernel + ".cl", MODELS), kernel, options.split()
    of, old, new = fields
    text, kernel, options = source_of(of)
    if text.count(old) != 1:
        sys.exit(f"programs.def: {name}: the text of {of} holds {text.count(old)} times: {old}")
    return text.replace(old, new), kernel, options


def main():
    clang, name, output = sys.argv[1:]
    command = [clang, "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-target",
               "x86_64-linux-gnu", "-O1", "-fPIC", "-w", "-c", "-o", output]
    if name == "builtins":
        return subprocess.run(command + [str(HERE / "builtins.cl")], check=False).returncode
    text, kernel, options = source_of(name)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "kernel.cl")
        source.write_text(text)
        command += options + ["-DTILE_UNROLL=0", f"-D{kernel}=pipeline_{name}", str(source)]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
