#!/usr/bin/env bash
# The library as another project meets it: installs the build into an empty folder, then builds README.md's example
# against that as C and as C++ through pkg-config, and through CMake where there is one, and runs it.
# Usage: test_embedding.sh SOURCE_FOLDER BUILD_FOLDER
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

meson install -C "$build" --no-rebuild --quiet --destdir "$work/root"
config=$(find "$work/root" -name clattn.pc)
prefix=$work/root$(sed -n 's/^prefix=//p' "$config")
PKG_CONFIG_PATH=$(dirname "$config")
export PKG_CONFIG_PATH
library=$(find "$work/root" -name 'libclattn.so')
if [ -n "$library" ]; then
    LD_LIBRARY_PATH=$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi

mkdir "$work/c"
awk '$0 == "```" { on = 0 } on; $0 == "```c" { on = 1 }' "$source/README.md" >"$work/c/example.c"
cp "$work/c/example.c" "$work/c/example_cpp.cpp"

read -ra flags <<<"$(pkg-config --define-variable=prefix="$prefix" --cflags --libs clattn)"
strict=(-Wall -Wextra -Wpedantic -Werror)
"${CC:-cc}" -std=c11 "${strict[@]}" "$work/c/example.c" "${flags[@]}" -o "$work/c/example"
"${CXX:-c++}" -std=c++11 "${strict[@]}" "$work/c/example_cpp.cpp" "${flags[@]}" -o "$work/c/example_cpp"

run() {
    local output status=0
    output=$("$1") || status=$?
    echo "$(basename "$1"): $output"
    if [ "$status" -ne 0 ]; then
        exit "$status" # 77, a skip, where there is no device
    fi
    [ "$output" = "the first query sees the first key alone: -3 is -3" ]
}
run "$work/c/example"
run "$work/c/example_cpp"

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
cmake -S "$work/c" -B "$work/c/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" || { cat "$work/log" && exit 1; }
cmake --build "$work/c/build" >"$work/log" || { cat "$work/log" && exit 1; }
run "$work/c/build/by_cmake"
run "$work/c/build/by_cmake_cpp"
