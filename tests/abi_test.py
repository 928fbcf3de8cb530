#!/usr/bin/env python3
"""The binary interface against what is kept of it in cases/abi.txt, a line a fact: a function, the size of a struct, a
member and where it lies, the number of a name. A program that was built with the headers of then runs with a library of
these headers where every line is still true; new lines may come.

What is read (by abidw, of Debian's abigail-tools) is the debug information of a library made of the headers alone, each
function a stub: the compiler holds the definitions to these declarations, and the test `symbols` the exported names.
Usage: abi_test.py SOURCE_FOLDER [--update]"""
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

STUB = re.compile(r'(__attribute__\(\(visibility\("default"\)\)\)[^;{}]*);')
CC = os.environ.get("CC", "cc").split()
OTHER_LIBRARIES = ("ring_mpi.h",)
# Name, what is replaced in the headers, by what: changes that programs do not survive, one of each kind.
BREAKING = (
    ("another member between", r"(clattn_tensor q, k, v, o), lse;", r"\1, more, lse;"),
    ("another member at the end", r"\} clattn_norm_op;", "int more; } clattn_norm_op;"),
    ("another type of a member", r"int64_t offset;", "int64_t *offset;"),
    ("another number of a name", "CLATTN_BF16 = 3", "CLATTN_BF16 = 33"),
    ("a function less", r"\bclattn_version\(void\);", "hidden(void);"),
    ("another type of an argument", "int32_t heads, float", "int64_t heads, float"),
    ("another signature of a callback", r"void \*user, clattn_log_level", "int user, clattn_log_level"),
)
ADDING = (
    ("a function more", "$", ' __attribute__((visibility("default"))) int clattn_more(int more);'),
    ("a name more", "CLATTN_BF16 = 3", "CLATTN_BF16 = 3, CLATTN_MORE = 99"),
)


def declarations(source):
    """Of all public headers of libclattn, preprocessed, on one line."""
    folder = source / "include"
    headers = sorted(path.relative_to(folder) for path in folder.glob("clattn/*.h") if path.name not in OTHER_LIBRARIES)
    text = "".join(f"#include <{header}>\n" for header in headers)
    command = [*CC, "-E", "-P", "-I", str(folder), "-x", "c", "-"]
    return " ".join(subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout.split())


class Types:
    """The types of a document that abidw wrote."""

    def __init__(self, document):
        self.document = document
        self.by_id = {node.get("id"): node for node in document.iter() if node.get("id")}

    def function(self, node, name):
        arguments = ", ".join(self.named(argument.get("type-id")) for argument in node.iter("parameter"))
        return f"{self.named(node.find('return').get('type-id'))} {name}({arguments or 'void'})"

    def members(self, node):
        for member in node.findall("data-member"):
            variable = member.find("var-decl")
            offset = int(member.get("layout-offset-in-bits", 0)) // 8
            yield offset, f"{self.named(variable.get('type-id'))} {variable.get('name')}"

    def named(self, key):
        node = self.by_id[key]
        if node.tag == "pointer-type-def":
            pointed = self.by_id[node.get("type-id")]
            if pointed.tag == "function-type":
                return self.function(pointed, "*")
            return self.named(node.get("type-id")) + " *"
        if node.tag == "qualified-type-def":
            return self.named(node.get("type-id")) + " const"
        if node.tag == "array-type-def":
            lengths = (f"[{part.get('length')}]" for part in node.iter("subrange"))
            return self.named(node.get("type-id")) + "".join(lengths)
        if node.tag == "union-decl":
            return "union { " + "; ".join(text for _, text in self.members(node)) + " }"
        return node.get("name")


def facts(text, folder):
    """The lines of a dump, from declarations."""
    code, library = pathlib.Path(folder, "stubs.c"), pathlib.Path(folder, "stubs.so")
    code.write_text(STUB.sub(r"\1 { __builtin_trap(); }", text))
    subprocess.run([*CC, "-std=c11", "-g", "-shared", "-fPIC", "-fvisibility=hidden", str(code), "-o", str(library)],
                   check=True)
    dump = subprocess.run(["abidw", str(library)], check=True, capture_output=True, text=True)
    types = Types(ElementTree.fromstring(dump.stdout))
    lines = {types.function(node, node.get("name")) for node in types.document.iter("function-decl")}
    for node in types.document.iter("class-decl"):
        if node.get("is-declaration-only") is None:
            name = f"struct {node.get('name')}"
            lines.add(f"{name}, {int(node.get('size-in-bits')) // 8} bytes")
            lines |= {f"{name}, at {offset:4}: {text}" for offset, text in types.members(node)}
    for node in types.document.iter("enum-decl"):
        name = f"enum {node.get('name')}"
        lines |= {f"{name}: {part.get('name')} = {part.get('value')}" for part in node.iter("enumerator")}
    for node in types.document.iter("typedef-decl"):
        target = types.named(node.get("type-id"))
        if node.get("name").startswith("clattn_") and target != node.get("name"):
            lines.add(f"typedef {target} {node.get('name')}")
    return lines


def untrue(kept, now):
    return sorted(kept - now)


def main():
    source = pathlib.Path(sys.argv[1])
    file = source / "tests/cases/abi.txt"
    if not shutil.which("abidw") or struct.calcsize("P") != 8:
        print("needs abidw (Debian: abigail-tools) and a 64-bit machine")
        return 77
    text = declarations(source)
    with tempfile.TemporaryDirectory() as folder:
        now = facts(text, folder)
        if sys.argv[2:] == ["--update"]:
            file.write_text("\n".join(sorted(now)) + "\n")
            return 0
        kept = set(file.read_text().splitlines())
        print(f"{len(kept)} facts, {len(now - kept)} new", *(f"+ {line}" for line in sorted(now - kept)), sep="\n")
        for line in untrue(kept, now):
            print(f"- {line}")
        good = kept and not untrue(kept, now)
        if not good:
            print("Programs that were built before would break. Where that is meant, see tests/README.md.")
        for passes, changes in ((False, BREAKING), (True, ADDING)):
            for name, pattern, replacement in changes:
                changed = re.sub(pattern, replacement, text, count=1)
                assert changed != text, f"{name}: the headers have no {pattern}"
                if passes == bool(untrue(now, facts(changed, folder))):
                    good = False
                    print(f"{name}: {'refused' if passes else 'not seen'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
