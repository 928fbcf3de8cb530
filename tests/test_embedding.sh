#!/usr/bin/env bash
# The library as another project meets it: installs the build into an empty folder, then builds README.md's example
# against that as C and as C++, and runs it: through pkg-config (shared and static; the packages of what the library
# itself uses are out of sight), through Meson (installed, and the source as a subproject), and through CMake where there
# is one (shared, static, and an archive of the installed folder by FetchContent).
# Usage: test_embedding.sh SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run PROGRAM...: of a folder, by name; each in C and C++.
run() {
    local program output status
    for program in "$@"; do
        status=0
        output=$("$program") || status=$?
        echo "${program#"$work/"}: $output"
        if [ "$status" -ne 0 ]; then
            exit "$status" # 77, a skip, where there is no device
        fi
        [ "$output" = "the first query sees the first key alone: -3 is -3" ] || exit 1
    done
}

# alone PROGRAM...: these have the library in them.
alone() {
    local program
    for program in "$@"; do
        if ldd "$program" | grep -q libclattn; then
            echo "${program#"$work/"} took the shared library"
            exit 1
        fi
    done
}

# quietly COMMAND...: what it says only where it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" && return 1; }
}

meson install -C "$build" --no-rebuild --quiet --destdir "$work/root"
config=$(find "$work/root" -name clattn.pc)
prefix=$work/root$(sed -n 's/^prefix=//p' "$config")
sed -i "s|^prefix=.*|prefix=$prefix|" "$config"
# Of all packages in the distribution these two alone.
mkdir "$work/packages"
cp "$config" "$(pkg-config --variable=pcfiledir OpenCL)/OpenCL.pc" "$work/packages"
export PKG_CONFIG_LIBDIR=$work/packages
unset PKG_CONFIG_PATH
shared=$(find "$work/root" -name 'libclattn.so') static=$(find "$work/root" -name 'libclattn.a')
if [ -n "$shared" ]; then
    LD_LIBRARY_PATH=$(dirname "$shared")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
for header in clattn kv_cache ring training variants; do
    [ -f "$prefix/include/clattn/$header.h" ]
done
version=$(pkg-config --modversion clattn)
if [ -f "$prefix/bin/clattn" ]; then
    [ "$("$prefix/bin/clattn" --version)" = "clattn $version" ]
    grep -q "clattn $version" "$prefix/share/man/man1/clattn.1"
fi

mkdir "$work/c"
awk '$0 == "```" { on = 0 } on; $0 == "```c" { on = 1 }' "$source/README.md" >"$work/c/example.c"
cp "$work/c/example.c" "$work/c/example_cpp.cpp"

# compiled SUFFIX FLAG...: example and example_cpp with that suffix.
strict=(-Wall -Wextra -Wpedantic -Werror)
compiled() {
    local suffix=$1
    shift
    "${CC:-cc}" -std=c11 "${strict[@]}" "$work/c/example.c" "$@" -o "$work/c/example$suffix"
    "${CXX:-c++}" -std=c++11 "${strict[@]}" "$work/c/example_cpp.cpp" "$@" -o "$work/c/example_cpp$suffix"
    run "$work/c/example$suffix" "$work/c/example_cpp$suffix"
}
read -ra flags <<<"$(pkg-config --cflags --libs clattn)"
compiled "" "${flags[@]}"
if [ -n "$static" ]; then
    read -ra flags <<<"$(pkg-config --static --cflags --libs clattn)"
    compiled _static "${flags[@]/#-lclattn/$static}"
    alone "$work/c/example_static" "$work/c/example_cpp_static"
fi

# over_mpi PACKAGE_FILE: README.md's second example, as two ranks.
over_mpi() {
    local flags output status=0
    [ -f "$prefix/include/clattn/ring_mpi.h" ]
    sed -i "s|^prefix=.*|prefix=$prefix|" "$1"
    awk '$0 == "```" { on = 0 } on; $0 == "```c mpi" { on = 1 }' "$source/README.md" >"$work/c/example_mpi.c"
    flags=$(env -u PKG_CONFIG_LIBDIR PKG_CONFIG_PATH="$(dirname "$1")" pkg-config --cflags --libs clattn_mpi)
    read -ra flags <<<"$flags"
    "${CC:-cc}" -std=c11 "${strict[@]}" "$work/c/example_mpi.c" "${flags[@]}" -o "$work/c/example_mpi"
    output=$("$source/tests/mpirun.sh" 2 "$work/c/example_mpi") || status=$?
    echo "c/example_mpi: $output"
    [ "$status" -eq 77 ] || [ "$output" = "the first query sees the first key alone: -3 is -3" ]
}
mpi=$(find "$work/root" -name clattn_mpi.pc)
if [ -n "$mpi" ]; then
    over_mpi "$mpi"
fi

mkdir -p "$work/meson/subprojects"
cp "$work/c/example"*.c* "$work/meson"
cat >"$work/meson/meson.build" <<'MESON'
project('example', 'c', 'cpp', default_options: ['c_std=c11'])
clattn = dependency('clattn', version: '>=0.1', fallback: 'clattn')
executable('by_meson', 'example.c', dependencies: clattn)
executable('by_meson_cpp', 'example_cpp.cpp', dependencies: clattn)
MESON
# by_meson FOLDER OPTION...
by_meson() {
    local folder=$work/meson/$1
    shift
    quietly meson setup "$folder" "$work/meson" --buildtype=debug "$@"
    quietly ninja -C "$folder"
    run "$folder/by_meson" "$folder/by_meson_cpp"
}
by_meson installed
unset PKG_CONFIG_LIBDIR
ln -s "$source" "$work/meson/subprojects/clattn"
by_meson subproject --force-fallback-for=clattn -Dclattn:default_library=static -Dclattn:tests=false \
    -Dclattn:tools=false
alone "$work/meson/subproject/by_meson" "$work/meson/subproject/by_meson_cpp"

if ! command -v cmake >/dev/null; then
    echo "no CMake here: that way is not tried"
    exit
fi
cat >"$work/c/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.13)
project(example C CXX)
if(ARCHIVE)
  include(FetchContent)
  FetchContent_Declare(clattn URL "${ARCHIVE}")
  FetchContent_GetProperties(clattn)
  if(NOT clattn_POPULATED)
    FetchContent_Populate(clattn)
  endif()
  find_package(clattn 0.1 REQUIRED PATHS "${clattn_SOURCE_DIR}" NO_DEFAULT_PATH)
else()
  find_package(clattn 0.1 REQUIRED)
endif()
add_executable(by_cmake example.c)
add_executable(by_cmake_cpp example_cpp.cpp)
target_link_libraries(by_cmake clattn::clattn)
target_link_libraries(by_cmake_cpp clattn::clattn)
CMAKE
# by_cmake FOLDER OPTION...
by_cmake() {
    local folder=$work/$1
    shift
    quietly cmake -S "$work/c" -B "$folder" "$@"
    quietly cmake --build "$folder"
    run "$folder/by_cmake" "$folder/by_cmake_cpp"
}
by_cmake cmake -DCMAKE_PREFIX_PATH="$prefix"
if [ -n "$static" ]; then
    by_cmake cmake_static -DCMAKE_PREFIX_PATH="$prefix" -Dclattn_USE_STATIC=ON
    alone "$work/cmake_static/by_cmake" "$work/cmake_static/by_cmake_cpp"
fi

# ranks_by_cmake: rings of one process each.
ranks_by_cmake() {
    local program
    mkdir "$work/ranks"
    cat >"$work/ranks/ranks.c" <<'MPI'
#include <clattn/ring_mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int level;
    clattn_ring_mpi *ring = NULL;
    clattn_ring_transport transport;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    if (clattn_ring_mpi_create(MPI_COMM_WORLD, 0, &ring) || clattn_ring_mpi_transport(ring, &transport))
        return puts(clattn_ring_mpi_last_error()), 1;
    printf("rank %d of %d: %s\n", transport.rank, transport.ranks, clattn_status_name(CLATTN_SUCCESS));
    clattn_ring_mpi_release(&ring);
    MPI_Finalize();
}
MPI
    cp "$work/ranks/ranks.c" "$work/ranks/ranks_cpp.cpp"
    cat >"$work/ranks/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.13)
project(ranks C CXX)
find_package(clattn 0.1 COMPONENTS no_such_component)
if(clattn_FOUND)
  message(FATAL_ERROR "no_such_component was found")
endif()
find_package(clattn 0.1 REQUIRED COMPONENTS mpi)
add_executable(ranks ranks.c)
add_executable(ranks_cpp ranks_cpp.cpp)
target_link_libraries(ranks clattn::clattn_mpi)
target_link_libraries(ranks_cpp clattn::clattn_mpi)
CMAKE
    quietly cmake -S "$work/ranks" -B "$work/cmake_ranks" -DCMAKE_PREFIX_PATH="$prefix"
    quietly cmake --build "$work/cmake_ranks"
    for program in ranks ranks_cpp; do
        [ "$("$work/cmake_ranks/$program")" = "rank 0 of 1: CLATTN_SUCCESS" ] || exit 1
    done
    echo "cmake_ranks: both run"
}
if [ -f "$prefix/include/clattn/ring_mpi.h" ]; then
    ranks_by_cmake
fi
tar -C "$(dirname "$prefix")" -czf "$work/clattn.tar.gz" "$(basename "$prefix")"
rm -r "$work/root"
by_cmake cmake_fetched -DARCHIVE="$work/clattn.tar.gz"
