#!/usr/bin/env bash
# Installs what is missing, builds clattn in build/, runs attention on the tensors of a real sentence encoder, and
# prints what the device is and how fast the three ways to compute attention are on it.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh

usage() {
    cat <<'HELP'
Usage: tools/demo.sh [--device D]

Installs the missing packages (apt-get; as root, or with sudo), builds in build/ and runs the demo on the first GPU,
else on the first OpenCL device (PoCL on the processor, where there is nothing else).

  --device D   a device's number, or a part of its name, as `clattn info` shows them

Example: tools/demo.sh --device pthread
HELP
}

device=()
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=(--device "${2:?--device wants a number or a name}") && shift ;;
        --device=*) device=("$1") ;;
        --help | -h) usage && exit ;;
        *) usage >&2 && exit 2 ;;
    esac
    shift
done

# Largest difference from the model's own output that the rounding of both to fp16 explains: see cases/encoder/README.md.
tolerance=4e-3

encoder_layer() {
    local files=tests/cases/encoder/layer$1 result
    result=$(mktemp --suffix=.npy)
    say "encoder layer $1: against the double-precision oracle, then against the model's own output"
    clattn run attention --check "${device[@]}" --in q="${files}_q.npy" --in k="${files}_k.npy" --in v="${files}_v.npy" \
        --out o="$result"
    python3 tools/compare_npy.py "$result" "${files}_o.npy" "$tolerance"
    rm -f "$result"
}

clattn() {
    build/tools/clattn "$@"
}

install_packages "${clattn_packages[@]}"
# shellcheck disable=SC2119 # no options
build

for layer in 0 1 2 3 4 5; do
    encoder_layer "$layer"
done
say "the devices, and what clattn would run on them (first each device's self-tests: some seconds)"
clattn info
say "unfused, host-tiled and fused attention: time, memory and errors. The table comes when all is measured and checked"
say "against the oracle, which takes seconds on a GPU and one to seven minutes on a processor"
clattn bench attention --suite seeds "${device[@]}"
