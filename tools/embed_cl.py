#!/usr/bin/env python3
"""Writes text files as C byte arrays: embed_cl.py OUT TABLE DIR NAME...

The output defines TABLE[] and TABLE_count (see src/source.h). It depends on nothing but the
arguments and the files' contents, so that builds are reproducible. Each array ends with a NUL that is not counted,
because ISO C has no empty arrays.
"""

import pathlib
import sys


def array(index, data):
    lines = [f"static const unsigned char file_{index}[] = {{"]
    for start in range(0, len(data), 24):
        lines.append("    " + "".join(f"{byte}," for byte in data[start : start + 24]))
    lines.append("    0};")
    return "\n".join(lines)


def main(out, table, folder, *names):
    files = [(name, (pathlib.Path(folder) / name).read_bytes()) for name in names]
    parts = ['#include "source.h"']
    parts += [array(index, data) for index, (_, data) in enumerate(files)]
    rows = "\n".join(f'    {{"{name}", file_{index}, {len(data)}}},' for index, (name, data) in enumerate(files))
    parts.append(f"const struct source_file {table}[] = {{\n{rows}\n}};")
    parts.append(f"const size_t {table}_count = sizeof {table} / sizeof {table}[0];")
    pathlib.Path(out).write_text("\n\n".join(parts) + "\n", encoding="ascii")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
