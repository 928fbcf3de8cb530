#!/usr/bin/env python3
"""Compiles kernels whose machine is not here: the files of NVIDIA's back-ends, which no driver of a CI machine takes,
through clang's OpenCL front-end to its NVPTX target. Types, names and includes are checked so; the text of inline
assembly is not. Fails too where a kernel would keep its block, or a matrix unit's sums, in memory once all is inlined,
as GPUs' compilers do.
Usage: .ci/offline.py CLANG"""
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from expand_cl import expand  # pylint: disable=wrong-import-position

MODIFIERS = ("BAND", "MASK", "ALIBI", "SEQUENCES", "PAGED", "SOFTCAP", "SINKS")
NAMED = MODIFIERS + ("K_STORED", "V_STORED", "K_ZEROS", "V_ZEROS")
I8, I4, F8 = 6, 7, 8
LATENT = {"HEAD_DIM": 576, "VALUE_DIM": 512, "K_SLICE": 576, "V_SLICE": 512, "GROUPS": 8, "SHARES": 4, "SCORE_TILES": 1,
          "V_IN_K": 1}


def compile_kernel(clang, name, backends, **options):
    with tempfile.TemporaryDirectory() as folder:
        source, output = pathlib.Path(folder, "kernel.cl"), pathlib.Path(folder, "kernel.ll")
        source.write_text(expand(name, backends))
        command = [clang, "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-target",
                   "nvptx64-nvidia-nvcl", "-Dasm=__asm__", "-O3", "-mllvm", "-inline-threshold=100000", "-S", "-emit-llvm",
                   "-w", "-o", str(output), str(source)]
        command += [f"-D{key}={value}" for key, value in options.items()]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        kept = r"= alloca %struct\.(block|gradient)_t"
        if backends["TILE_BACKEND"] != "fma":
            kept += r"|= alloca \[\d+ x %struct\.acc_t\]"
        in_memory = not run.returncode and re.search(kept, output.read_text())
    title = f"{name} {backends['TILE_BACKEND']} {backends['STAGE_BACKEND']} "
    title += " ".join(f"{k}={v}" for k, v in options.items() if k in NAMED)
    print(title, "FAILED" if run.returncode or in_memory else "ok")
    if run.returncode or in_memory:
        print(run.stderr or f"in memory: {in_memory.group(0)}")
    return not run.returncode and not in_memory


def stored(tensor, dtype, zeros):
    return {f"{tensor}_STORED": dtype, f"{tensor}_BLOCK": 0 if dtype == F8 else 32, f"{tensor}_NIBBLES": int(dtype == I4),
            f"{tensor}_ZEROS": zeros, f"{tensor}_ALIGNMENT": 8}


def tiles(clang, name, tile, element, modified, stage="plain", slots=2, **own):
    modifiers = {key: int(modified) for key in MODIFIERS}
    large = {"GROUPS": 4, "SCORE_TILES": 4, "MMA_ROWS": 32, "STAGE_SLOTS": slots} if stage != "plain" else \
        {"GROUPS": 16, "SCORE_TILES": 1, "MMA_ROWS": 16, "STAGE_SLOTS": 1}
    options = {"TILE_UNROLL": 1, "ELEMENT": element, "OUT_ELEMENT": element, "HEAD_DIM": 128, "VALUE_DIM": 128,
               "ALIGNED": 1, "K_SLICE": 128, "V_SLICE": 128, "Q_RESIDENT": 1, "FMA_ROWS": 4, "FMA_ITEMS": 16,
               "SG_SIZE": 32, "BIAS": element if modified else 0, **large, **modifiers, **own}
    return compile_kernel(clang, name, {"TILE_BACKEND": tile, "STAGE_BACKEND": stage, "SUBGROUP_BACKEND": "nvidia"},
                          **options)


def pipeline(clang, name, element, modifiers):
    options = {key: int(key in modifiers) for key in MODIFIERS}
    return compile_kernel(
        clang, name, {"TILE_BACKEND": "nvidia_wgmma", "STAGE_BACKEND": "nvidia_bulk"},
        TILE_UNROLL=1, ELEMENT=element, OUT_ELEMENT=element, HEAD_DIM=128, VALUE_DIM=128, GROUPS=2, BLOCK_KEYS=128,
        STAGES=2, Q_SLOTS=1, Q_HELD=1, HEADS_TOGETHER=4, TAKE_REGISTERS=232, GIVE_REGISTERS=40, OUT_ALIGNED=1,
        RETARGET=1, BIAS=element if "BIAS" in modifiers else 0, **options)


def main():
    clang = sys.argv[1]
    good = [tiles(clang, "attention_forward.cl", tile, element, modified)
            for tile, element, modified in itertools.product(("fma", "nvidia_mma"), (2, 3), (False, True))]
    good += [tiles(clang, "attention_decode.cl", tile, 2, modified, MASK_BLOCKS=0, PACKED=packed, SPLIT=packed % 2)
             for tile, packed, modified in itertools.product(("fma", "nvidia_mma"), (1, 4, 7), (False, True))]
    good += [tiles(clang, "attention_decode.cl", "nvidia_mma", 2, modified, "nvidia_cp_async", slots, MASK_BLOCKS=0,
                   PACKED=4, SPLIT=1) for modified in (False, True) for slots in (2, 4)]
    good += [tiles(clang, "attention_decode.cl", "nvidia_mma", 2, modified, "nvidia_cp_async", 2, MASK_BLOCKS=0,
                   PACKED=128, SPLIT=0, **LATENT) for modified in (False, True)]
    good += [tiles(clang, f"attention_backward_{name}.cl", tile, 2, modified, RESIDENT=1)
             for name, tile, modified in itertools.product(
                 ("keys", "queries", "bias"), ("fma", "nvidia_mma"), (False, True)) if modified or name != "bias"]
    good += [tiles(clang, "attention_forward.cl", "nvidia_mma", element, modified, "nvidia_cp_async", slots)
             for element, modified in ((2, False), (3, True)) for slots in (2, 4)]
    good += [tiles(clang, name, "nvidia_mma", 2, False, stage, K_SLICE=64, V_SLICE=64, MMA_ROWS=16, MASK_BLOCKS=0,
                   PACKED=1, SPLIT=0) for name, stage in itertools.product(
                       ("attention_forward.cl", "attention_decode.cl"), ("plain", "nvidia_cp_async"))]
    good += [tiles(clang, f"attention_backward_{name}.cl", "nvidia_mma", 2, False, RESIDENT=1, K_SLICE=64, V_SLICE=64)
             for name in ("keys", "queries")]
    good += [pipeline(clang, "attention_forward_pipelined.cl", element, modifiers)
             for element, modifiers in itertools.product((2, 3), ((), ("BAND",), MODIFIERS + ("BIAS",)))]
    good += [pipeline(clang, "selftest_pipeline.cl", element, ("BAND",)) for element in (2, 3)]
    good += [tiles(clang, "attention_forward.cl", tile, element, modified, **stored("K", k, 0), **stored("V", v, zeros))
             for tile, element, modified, k, v, zeros in (
                 ("fma", 2, True, I8, I4, 1), ("nvidia_mma", 2, False, I8, I8, 0), ("nvidia_mma", 3, True, I4, F8, 0))]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
