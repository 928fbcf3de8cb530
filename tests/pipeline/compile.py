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


FUNCTION = re.compile(r"^static (?:INLINED|inline) [^;{]*\{\n.*?^\}\n", re.M | re.S)

ASSEMBLY = re.compile(r"\basm\b|\bMMA_INSTRUCTION\b")


def without_assembly(text):
    """The model in the place of what is assembly."""
    model = (HERE / "mma_model.clh").read_text()
    text = re.sub(r"^#define \w+\(\) asm .*$", "", text, flags=re.M)
    first = next(found for found in FUNCTION.finditer(text) if ASSEMBLY.search(found.group()))
    kept = FUNCTION.sub(lambda found: "" if ASSEMBLY.search(found.group()) else found.group(), text[first.start():])
    return text[:first.start()] + model + kept


def expanded(kernel, options):
    named = dict(re.findall(r"-D(\w+_BACKEND)=(\w+)", options))
    return without_assembly(expand(kernel + ".cl", named)) if named else expand(kernel + ".cl", MODELS)


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
        return expanded(kernel, options), kernel, options.split()
    of, old, new = fields
    text, kernel, options = source_of(of)
    if text.count(old) != 1:
        sys.exit(f"programs.def: {name}: the text of {of} holds {text.count(old)} times: {old}")
    return text.replace(old, new), kernel, options


def compile_to(output, source, options):
    command = [sys.argv[1], "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-target",
               "x86_64-linux-gnu", "-O1", "-fPIC", "-w", "-o", output, str(source)] + options
    return subprocess.run(command, check=False).returncode


def main():
    clang, name, output = sys.argv[1:]
    if name == "builtins":
        return compile_to(output, HERE / "builtins.cl", ["-c"])
    text, kernel, options = source_of(name)
    with tempfile.TemporaryDirectory() as folder:
        source, assembly = pathlib.Path(folder, "kernel.cl"), pathlib.Path(folder, "kernel.ll")
        source.write_text(text)
        options += ["-DTILE_UNROLL=0", f"-D{kernel}=pipeline_{name}", "-S", "-emit-llvm"]
        if compile_to(str(assembly), source, options):
            return 1
        # A work-group is a thread: its local memory is what the thread has.
        kept = re.sub(rf"^(@pipeline_{name}\.\w+ = internal) (?:unnamed_addr )?global", r"\1 thread_local global",
                      assembly.read_text(), flags=re.M)
        assembly.write_text(kept)
        return subprocess.run([clang, "-c", "-fPIC", "-w", "-O1", "-o", output, str(assembly)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
