#!/usr/bin/env bash
# The library as another project meets it: installs the build into an empty folder, then builds README.md's example
# against that as C and as C++, shared and static, through pkg-config, through CMake where there is one, and with the
# source as a subproject of Meson, and runs it.
# Usage: test_embedding.sh SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {
    local output status=0
    output=$("$1") || status=$?
    echo "${1#"$work/"}: $output"
    if [ "$status" -ne 0 ]; then
        exit "$status" # 77, a skip, where there is no device
    fi
    [ "$output" = "the first query sees the first key alone: -3 is -3" ]
}

# quietly COMMAND...: what it says only where it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" && return 1; }
}

meson install -C "$build" --no-rebuild --quiet --destdir "$work/root"
config=$(find "$work/root" -name clattn.pc)
prefix=$work/root$(sed -n 's/^prefix=//p' "$config")
PKG_CONFIG_PATH=$(dirname "$config")
export PKG_CONFIG_PATH
shared=$(find "$work/root" -name 'libclattn.so') static=$(find "$work/root" -name 'libclattn.a')
if [ -n "$shared" ]; then
    LD_LIBRARY_PATH=$(dirname "$shared")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
for header in "$source"/include/clattn/*.h; do
    [ -f "$prefix/include/clattn/$(basename "$header")" ]
done

mkdir "$work/c"
awk '$0 == "```" { on = 0 } on; $0 == "```c" { on = 1 }' "$source/README.md" >"$work/c/example.c"
cp "$work/c/example.c" "$work/c/example_cpp.cpp"

read -ra flags <<<"$(pkg-config --define-variable=prefix="$prefix" --cflags --libs clattn)"
strict=(-Wall -Wextra -Wpedantic -Werror)
"${CC:-cc}" -std=c11 "${strict[@]}" "$work/c/example.c" "${flags[@]}" -o "$work/c/example"
"${CXX:-c++}" -std=c++11 "${strict[@]}" "$work/c/example_cpp.cpp" "${flags[@]}" -o "$work/c/example_cpp"
run "$work/c/example"
run "$work/c/example_cpp"
if [ -n "$static" ]; then
    read -ra flags <<<"$(pkg-config --define-variable=prefix="$prefix" --static --cflags --libs clattn)"
    "${CC:-cc}" -std=c11 "${strict[@]}" "$work/c/example.c" "${flags[@]/#-lclattn/$static}" -o "$work/c/example_static"
    run "$work/c/example_static"
fi

mkdir -p "$work/meson/subprojects"
cp "$work/c/example.c" "$work/meson"
ln -s "$source" "$work/meson/subprojects/clattn"
cat >"$work/meson/meson.build" <<'MESON'
project('example', 'c', default_options: ['c_std=c11'])
executable('by_meson', 'example.c', dependencies: dependency('clattn', fallback: 'clattn'))
MESON
quietly env PKG_CONFIG_PATH= meson setup "$work/meson/build" "$work/meson" --buildtype=debug --default-library=static \
    --force-fallback-for=clattn -Dclattn:tests=false -Dclattn:tools=false
quietly ninja -C "$work/meson/build"
run "$work/meson/build/by_meson"

if ! command -v cmake >/dev/null; then
    echo "no CMake here: that way is not tried"
    exit
fi
cat >"$work/c/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.13)
project(example C CXX)
find_package(clattn 0.1 REQUIRED)
add_executable(by_cmake example.c)
add_executable(by_cmake_cpp example_cpp.cpp)
target_link_libraries(by_cmake clattn::clattn)
target_link_libraries(by_cmake_cpp clattn::clattn)
CMAKE
# by_cmake FOLDER OPTION...
by_cmake() {
    local folder=$work/$1
    shift
    quietly cmake -S "$work/c" -B "$folder" -DCMAKE_PREFIX_PATH="$prefix" "$@"
    quietly cmake --build "$folder"
    run "$folder/by_cmake"
    run "$folder/by_cmake_cpp"
}
by_cmake cmake
if [ -n "$static" ]; then
    by_cmake cmake_static -Dclattn_USE_STATIC=ON
    if ldd "$work/cmake_static/by_cmake" | grep -q libclattn; then
        echo "the static target took the shared library"
        exit 1
    fi
fi
