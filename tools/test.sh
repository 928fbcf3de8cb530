#!/usr/bin/env bash
# Installs what is missing, builds clattn in build/ and runs its tests on every OpenCL device found.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh

usage() {
    cat <<'HELP'
Usage: tools/test.sh [--install-only] [MESON_OPTION...]

Installs the missing packages (apt-get; as root, or with sudo), builds in build/ and runs `meson test`.

  --install-only   stop after the packages
  MESON_OPTION     for the build, as in -Dclblast=disabled

Example: tools/test.sh -Dwerror=true
HELP
}

install_only=false
options=()
for argument in "$@"; do
    case $argument in
        --install-only) install_only=true ;;
        --help | -h) usage && exit ;;
        -D*) options+=("$argument") ;;
        *) usage >&2 && exit 2 ;;
    esac
done

install_packages "${clattn_packages[@]}" "${mpi_packages[@]}"
if $install_only; then
    exit
fi
build "${options[@]}"
meson test -C build --print-errorlogs
