# shellcheck shell=bash
# Sourced by test.sh, demo.sh and the CI run: the packages of Debian 12 and Ubuntu 24.04 that clattn needs, and how the
# missing ones are installed. Does nothing, not even refresh the package lists, where all are there.

# shellcheck disable=SC2034 # for those who source this
clattn_packages=(
    gcc g++ meson ninja-build pkg-config python3
    ocl-icd-opencl-dev opencl-headers pocl-opencl-icd
    libclblast-dev libcjson-dev libxxhash-dev libcmocka-dev
)
# shellcheck disable=SC2034
mpi_packages=(libopenmpi-dev openmpi-bin) # for libclattn_mpi

say() {
    printf '== %s\n' "$*"
}

package_installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# install_packages NAME...
install_packages() {
    local missing=() as_root=() name
    if ! command -v apt-get >/dev/null; then
        say "no apt-get here: assuming that these packages, as Debian names them, are installed: $*"
        return
    fi
    for name in "$@"; do
        package_installed "$name" || missing+=("$name")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi
    say "installing with apt-get: ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            say "this needs root, or sudo"
            return 1
        fi
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update || say "not every package list could be refreshed; going on with what is known"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"
}

# build [MESON_OPTION...]: makes build/ once; later calls only change the options they name and compile what changed.
build() {
    if [ ! -f build/build.ninja ]; then
        meson setup build "$@"
    elif [ $# -gt 0 ]; then
        meson configure build "$@"
    fi
    meson compile -C build
}
