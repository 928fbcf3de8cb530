#!/usr/bin/env bash
# The shared library gives the functions of its headers and nothing else.
# Usage: test_symbols.sh LIBRARY HEADER...
set -euo pipefail
command -v nm >/dev/null || exit 77
exported=$(nm --dynamic --defined-only --extern-only --format=posix "$1" | awk '{ print $1 }' | sort)
declared=$(sed -n 's/^CLATTN_API .*[ *]\(clattn_[a-z0-9_]*\)(.*/\1/p' "${@:2}" | sort)
diff <(echo "$declared") <(echo "$exported") && echo "$(wc -l <<<"$exported") functions"
