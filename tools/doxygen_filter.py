#!/usr/bin/env python3
"""The public headers as Doxygen wants them; what they say stays as it is. Comments become Doxygen's; indented lines in
them (shapes, formulas) are kept line by line. Members and values without a comment of their own are referred to that of
their struct or enum, and calls without one to that of the struct above, which they take, or of the call in the line
above. What is described nowhere is left alone, so that Doxygen complains.
Usage: doxygen_filter.py HEADER"""
import re
import sys

SECTION = re.compile(r"\s*/\* -{4}")
TYPE = re.compile(r"typedef (?:struct|enum) (\w+) \{")
CALL = re.compile(r"(?:CLATTN_API .*?(?=\w+\()|#define (?=\w+ \S))(\w+)")
DECLARATORS = re.compile(r"(\s+)((?:const )?\w+ )([*\w\[\], ]+);(.*)")


def shielded(text):
    """Text without what Doxygen takes for a command, a tag or a link."""
    return re.sub(r"([@\\<#%])", r"\\\1", text)


def comment(lines):
    """A comment's lines; what is indented by more than a space stays as it is."""
    result, verbatim = [], False
    for line in lines:
        text = re.sub(r"^\s*(/\*|\*) ?|\s*\*/\s*$", "", line)
        if text.startswith("  ") != verbatim and text:
            verbatim = not verbatim
            result.append("@verbatim" if verbatim else "@endverbatim")
        result.append(text if verbatim else shielded(text))
    return result + ["@endverbatim"] * verbatim


class Filter:
    def __init__(self):
        self.lines = []
        self.type = None  # the struct or enum whose members are read, or which was the last one
        self.inside = False  # its members are being read
        self.described = False  # by the comment before it
        self.call = None  # a described call in the line above
        self.pending = False  # a comment stands before this line

    def say(self, text):
        self.lines.append(text)

    def block(self, lines):
        opening = "/** @file" if not self.lines else "/**"
        self.pending = bool(self.lines)
        self.lines += [opening, *comment(lines), "*/"]

    def member(self, line):
        code, _, own = line.partition("/*")
        own = shielded(own.removesuffix("*/").strip())
        end = f" /**< {own} */" if own else ""
        elsewhere = end or (f" /**< See #{self.type}. */" if self.described else "")
        match = DECLARATORS.match(code)
        indent, kind, names, _ = match.groups() if match else ("", "", code.rstrip(), "")
        for name in names.split(",") if match else [names]:
            self.say(f"{indent}{kind}{name.strip()}{';' if match else ''}{end if self.pending else elsewhere}")
            self.pending = False

    def declaration(self, line, below):
        call = CALL.match(line)
        if call and not self.pending:
            if self.type and self.described and re.search(rf"\b{self.type}\b", below):
                self.say(f"/** See #{self.type}. */")
            elif self.call:
                self.say(f"/** See #{self.call}. */")
        if call:
            self.call = call[1] if self.pending or self.call else None
        kind = TYPE.match(line)
        if kind:
            self.type, self.inside, self.described = kind[1], True, self.pending
        self.say(line)
        if line.strip():
            self.pending = False
        else:
            self.call = None

    def run(self, lines):
        rest = list(lines)
        while rest:
            line = rest.pop(0)
            starts = line.lstrip().startswith("/*")
            taken = [line]
            while "/*" in line and "*/" not in taken[-1]:
                taken.append(rest.pop(0))
            if SECTION.match(line):
                self.say("")
            elif starts:
                self.block(taken)
            elif line.startswith("}") or not self.inside:
                self.inside = False
                self.declaration(line, " ".join([line, *rest[:4]]).split(";")[0])
            elif line.strip():
                whole = " ".join([line.rstrip(), *(part.strip().removeprefix("* ") for part in taken[1:])])
                self.member(whole)
        print("\n".join(self.lines))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        Filter().run(header.read().splitlines())
