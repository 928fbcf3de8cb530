"""Includes in place, as src/source.c puts them there: for scripts that compile kernels outside the library."""
import pathlib
import re

CL = pathlib.Path(__file__).resolve().parent.parent / "cl"


def expand(name, backends):
    """The text of a file of cl/; `backends` gives the names that stand in includes, "TILE_BACKEND" and the like."""
    text = []
    for line in (CL / name).read_text().splitlines():
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match:
            included = match.group(1)
            for key, value in backends.items():
                included = included.replace(key, value)
            line = expand(included, backends)
        text.append(line)
    return "\n".join(text)
