#!/usr/bin/env bash
# What a device shows in one go: its tests, the check of every variant, and the benchmark suites. Each step has a time limit
# and leaves its output in a folder.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

usage() {
    cat <<'HELP'
Usage: tools/measure.sh [--build DIR] [--device NAME] [--out DIR] [--limit SECONDS] [STEP...]

Runs steps on one OpenCL device with the command and the tests of an existing build folder. Prints a line a step, and
the tables of the benchmarks.

  --build DIR       the build folder (default: build)
  --device NAME     as for clattn: an index or a part of a name (default: the first GPU, else the first device)
  --out DIR         where outputs go (default: measured)
  --limit SECONDS   of one step (default: 600)
  STEP              tests, check, host, or a suite of `clattn bench`, with a dtype after a colon: modifiers:f16
                    (default: tests check host softmax norms attention)

Example: tools/measure.sh --device NVIDIA tests modifiers:f32 nvidia-forward
HELP
}

build=build device=() out=measured limit=600 steps=()
while [ $# -gt 0 ]; do
    case $1 in
        --build) build=$2 && shift ;;
        --device) device=(--device "$2") && shift ;;
        --out) out=$2 && shift ;;
        --limit) limit=$2 && shift ;;
        --help | -h) usage && exit ;;
        -*) usage >&2 && exit 2 ;;
        *) steps+=("$1") ;;
    esac
    shift || { usage >&2 && exit 2; }
done
[ ${#steps[@]} -gt 0 ] || steps=(tests check host softmax norms attention)
command=$build/tools/clattn
[ -x "$command" ] || { echo "no $command: build first (tools/test.sh, or meson compile -C $build)" >&2 && exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit
export CLATTN_CACHE_DIR=${CLATTN_CACHE_DIR-$out/cache}

# The command of a step, in the array `run`. Tests run side by side: most of their time goes to the compiler.
command_of() {
    local suite=${1%%:*} dtype=()
    [ "$suite" = "$1" ] || dtype=(--dtype "${1#*:}")
    case $suite in
        tests) run=(env CLATTN_TEST_DEVICE="${device[1]:-}" meson test -C "$build" --no-rebuild --num-processes "$(nproc)"
            --no-suite unit --no-suite long --no-suite embedding) ;;
        check) run=("$command" check "${device[@]}" "${dtype[@]}") ;;
        *) run=("$command" bench --suite "$suite" "${device[@]}" "${dtype[@]}") ;;
    esac
}

failed=0
for name in "${steps[@]}"; do
    log=$out/${name/:/_}.txt SECONDS=0
    command_of "$name"
    timeout --kill-after=30 "$limit" "${run[@]}" >"$log" 2>&1
    status=$?
    echo "== $name: exit status $status after $SECONDS s"
    case $name in
        tests) grep -E ' (FAIL|TIMEOUT|ERROR) ' "$log" ;;
        check*) grep -vw ok "$log" | tail -n 40 ;;
        *) cut -c 1-200 "$log" ;;
    esac
    [ "$status" -eq 0 ] || failed=1
done
exit $failed
