#!/usr/bin/env python3
"""Writes the manual page of the command from what it says of itself, so that the two cannot differ.
Usage: make_man.py CLATTN OUTPUT"""
import datetime
import os
import re
import subprocess
import sys
import time

ENVIRONMENT = (
    ("CLATTN_CAPS", "Capabilities that may be used: none, or all,-shuffle and so on. It can only take some away."),
    ("CLATTN_CL_DIR", "Kernels from this folder, not those in the library."),
    ("CLATTN_CACHE_DIR", "Where compiled programs are kept; empty: nowhere. Default: clattn below the XDG cache folder."),
    ("CLATTN_TUNING_DB", "The user's tuning rows; empty: none. Default: below the XDG data folder."),
    ("CLATTN_LOG", "The least important level that is logged: error, warning, info or debug."),
)


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.splitlines())


def literal(text):
    return ".nf\n" + escape(text.strip("\n")) + "\n.fi\n"


def main():
    command, output = sys.argv[1:]

    def said(*words):
        return subprocess.run([command, *words], check=True, capture_output=True, text=True).stdout

    whole, version = said("--help"), said("--version").split()[-1]
    names = re.findall(r"^  (\w+)  +\S", whole, re.MULTILINE)
    built = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    date = datetime.datetime.fromtimestamp(built, datetime.timezone.utc).strftime("%Y-%m-%d")
    page = f'.TH CLATTN 1 {date} "clattn {version}" "User Commands"\n'
    page += ".SH NAME\nclattn \\- run, check and measure attention kernels on OpenCL devices\n"
    page += ".SH SYNOPSIS\n.B clattn\n.I COMMAND\n[\\fIOPTION\\fR]...\n"
    page += ".SH DESCRIPTION\n" + literal(whole.split("\n", 1)[1])
    for name in names:
        page += f".SH CLATTN {name.upper()}\n" + literal(said(name, "--help"))
    page += ".SH ENVIRONMENT\n"
    for name, meaning in ENVIRONMENT:
        page += f".TP\n.B {name}\n{escape(meaning)}\n"
    page += ".SH SEE ALSO\n.BR clinfo (1)\n"
    with open(output, "w", encoding="utf-8") as file:
        file.write(page)


if __name__ == "__main__":
    main()
