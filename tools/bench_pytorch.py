#!/usr/bin/env python3
"""Times PyTorch's attention at the shapes of `clattn bench attention --suite nvidia-forward`, beside which it is meant to
be read: FlashAttention-2, cuDNN and, for fp32, the memory-efficient kernel. Needs PyTorch with CUDA, and a GPU.

A time is that of one of 20 calls back to back in a replayed CUDA graph, the median of 20 replays after a warm-up.

    tools/bench_pytorch.py [--json]
"""

import argparse
import json
import statistics
import sys

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
except ImportError:
    sys.exit("bench_pytorch: there is no PyTorch here")

CALLS, REPLAYS = 20, 20

# Batch, heads, heads of keys, length, head dim: those of tools/bench_suites.c.
SHAPES = [
    (4, 32, 32, 4096, 128),
    (1, 32, 32, 16384, 128),
    (8, 32, 32, 2048, 64),
    (16, 32, 32, 512, 128),
    (16, 32, 32, 512, 64),
    (32, 32, 32, 128, 64),
    (2, 16, 16, 4096, 256),
    (2, 16, 16, 4096, 192),
    (2, 16, 16, 4096, 96),
    (2, 16, 16, 4096, 80),
    (4, 32, 8, 8192, 128),
]

NARROW = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
WIDE = {"efficient": SDPBackend.EFFICIENT_ATTENTION}


def time_calls(call):
    """Seconds of one call."""
    stream = torch.cuda.Stream()
    seconds = []
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CALLS):
                call()
        for _ in range(REPLAYS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1000 / CALLS)
    return statistics.median(seconds)


def measure(shape, dtype, causal, backends):
    batch, heads, kv_heads, length, head_dim = shape
    random = lambda count: torch.randn(batch, count, length, head_dim, device="cuda", dtype=dtype)
    q, k, v = random(heads), random(kv_heads), random(kv_heads)
    times = {}
    for name, backend in backends.items():
        call = lambda: scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
        try:
            with sdpa_kernel([backend]):
                times[name] = time_calls(call)
        except RuntimeError:
            times[name] = None  # the backend refuses the shape
    return times


def show(row):
    text = ",".join(str(n) for n in row["shape"])
    for name, seconds in row["seconds"].items():
        text += f"  {name} " + (f"{seconds * 1e3:.4f} ms" if seconds else "refused")
    print(f"{row['dtype']:8} {'causal' if row['causal'] else 'full':6} {text}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON document")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_pytorch: PyTorch sees no GPU here")
    torch.manual_seed(1)
    jobs = [(shape, torch.float16, NARROW) for shape in SHAPES] + [(SHAPES[0], torch.float32, WIDE)]
    rows = []
    for shape, dtype, backends in jobs:
        for causal in (False, True):
            seconds = measure(shape, dtype, causal, backends)
            rows.append({"shape": shape, "dtype": str(dtype)[6:], "causal": causal, "seconds": seconds})
            if not arguments.json:
                show(rows[-1])
    if arguments.json:
        print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "results": rows}))


if __name__ == "__main__":
    main()
