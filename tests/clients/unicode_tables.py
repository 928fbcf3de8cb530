#!/usr/bin/env python3
"""Write what the tokenizer needs to know about characters as a C header.

classes[]: ranges of controls, spaces and punctuation.
folds[]: what a character becomes without case and accents (nothing, for an
accent by itself), where that is not the character.
"""

import sys
import unicodedata

LAST = 0x323AF
SURROGATES = range(0xD800, 0xE000)
MOST = 3  # characters that one becomes


def character_class(character):
    category = unicodedata.category(character)
    if character in "\t\n\r":
        return "SPACE"
    if category in ("Cc", "Cf", "Co"):
        return "CONTROL"
    if character.isspace():
        return "SPACE"
    if category.startswith("P") or (
            character.isascii() and not character.isalnum()):
        return "PUNCTUATION"
    return None


def fold(character):
    plain = "".join(c for c in unicodedata.normalize("NFD", character)
                    if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in plain)


def ranges(characters):
    """Yield (first, last, class) of neighbours of one class."""
    first = last = current = None
    for code, character in characters:
        found = character_class(character)
        if found != current or code != last + 1:
            if current:
                yield first, last, current
            first, current = code, found
        last = code
    if current:
        yield first, last, current


def main():
    characters = [(code, chr(code)) for code in range(1, LAST + 1)
                  if code not in SURROGATES]
    lines = ["static const struct character_class classes[] = {"]
    lines += [f"    {{{first:#x}, {last:#x}, CLASS_{name}}},"
              for first, last, name in ranges(characters)]
    lines += ["};", "static const struct character_fold folds[] = {"]
    for code, character in characters:
        folded = fold(character)
        if folded == character or len(folded) > MOST:
            continue
        codes = [f"{ord(c):#x}" for c in folded] or ["0"]
        lines.append(f"    {{{code:#x}, {{{', '.join(codes)}}}}},")
    lines.append("};")
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
