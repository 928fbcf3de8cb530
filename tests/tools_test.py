#!/usr/bin/env python3
"""The command clattn, end to end, on the default device: tensors from and to .npy files, exit codes of misuse, JSON,
CSV and SVG that other programs can read, and the counter of device memory.

usage: tools_test.py CLATTN HIDDEN_BUFFER_LIBRARY
Exit status 77 (skipped) where there is no OpenCL device. Plain Python: NumPy may be absent."""
import ast
import csv
import json
import math
import os
import pty
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

CLATTN, HIDDEN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
HIDDEN_BYTES = 48 << 20
FORMATS = {"<f4": "f", "<f2": "e", "<u2": "H", "<i4": "i", "<i8": "q", "|u1": "B", "|b1": "?", "|i1": "b"}


def clattn(*words, env=None):
    return subprocess.run([CLATTN, *words], capture_output=True, text=True, timeout=300, env={**os.environ, **(env or {})})


def strides_of(shape, fortran):
    strides, step = [0] * len(shape), 1
    for d in range(len(shape)) if fortran else reversed(range(len(shape))):
        strides[d] = step
        step *= shape[d]
    return strides


def indices_of(shape):
    if not shape:
        yield ()
        return
    for i in range(shape[0]):
        for rest in indices_of(shape[1:]):
            yield (i, *rest)


def write_npy(path, shape, values, descr="<f4", fortran=False, stored_descr=None):
    """values: in C order; written in the order that is asked for."""
    ordered = list(values)
    if fortran:
        strides = strides_of(shape, True)
        for value, index in zip(values, indices_of(shape)):
            ordered[sum(i * s for i, s in zip(index, strides))] = value
    header = f"{{'descr': '{stored_descr or descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(ordered)}{FORMATS[descr]}", *ordered))


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:10 + length].decode())
    assert (10 + length) % 64 == 0 and not header["fortran_order"]
    count = math.prod(header["shape"])
    return header["shape"], header["descr"], struct.unpack(f"<{count}{FORMATS[header['descr']]}", data[10 + length:])


def bf16(value):
    """To bfloat16 bits, to nearest even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def attention(q, k, v, shape_q, shape_k, causal=False, sees=lambda b, h, i, j: True, change=lambda b, h, i, j, s: s,
              sinks=None):
    """[B,H,N,D] lists in C order, one head of keys per head of queries."""
    batch, heads, nq, d = shape_q
    nk = shape_k[2]
    out = []
    for b, h, i in indices_of((batch, heads, nq)):
        row, first = q[((b * heads + h) * nq + i) * d:][:d], (b * heads + h) * nk
        seen = [j for j in range(nk) if (not causal or j <= i + nk - nq) and sees(b, h, i, j)]
        scores = [change(b, h, i, j, sum(x * y for x, y in zip(row, k[(first + j) * d:][:d])) / math.sqrt(d)) for j in seen]
        top = max(scores, default=0)
        weights = [math.exp(s - top) for s in scores]
        total = sum(weights) + (math.exp(sinks[h] - top) if sinks and seen else 0)
        for c in range(d):
            out.append(sum(w * v[(first + j) * d + c] for j, w in zip(seen, weights)) / total if seen else 0)
    return out


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def ok(self, *words, env=None):
        done = clattn(*words, env=env)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout

    def normal(self, count, seed=1):
        source = random.Random(seed)
        return [struct.unpack("<f", struct.pack("<f", source.gauss(0, 1)))[0] for _ in range(count)]

    def assertClose(self, got, want, tolerance):
        self.assertEqual(len(got), len(want))
        for g, w in zip(got, want):
            self.assertLessEqual(abs(g - w), tolerance)


class Run(Case):
    shape_q, shape_k = (1, 2, 5, 8), (1, 2, 7, 8)

    def write_attention(self, order=False, transposed=False):
        files = []
        for seed, (name, shape) in enumerate([("q", self.shape_q), ("k", self.shape_k), ("v", self.shape_k)]):
            values = self.normal(math.prod(shape), seed)
            setattr(self, name, values)
            stored = shape
            if transposed:
                stored = (shape[0], shape[2], shape[1], shape[3])
                values = self.swap(values, shape)
            write_npy(self.path(name), stored, values, fortran=order)
            files += ["--in", f"{name}={self.path(name)}"]
        return files

    @staticmethod
    def swap(values, shape):
        """[B,H,N,D] to [B,N,H,D] or back."""
        b, h, n, d = shape
        return [values[((i * h + k) * n + j) * d + c] for i in range(b) for j in range(n) for k in range(h) for c in range(d)]

    def test_attention_agrees_with_its_definition_in_every_order_and_layout(self):
        for causal in (False, True):
            for fortran, transposed in ((False, False), (True, False), (False, True)):
                files = self.write_attention(fortran, transposed)
                words = ["causal=bottom_right"] * causal + ["layout=bshd"] * transposed
                text = self.ok("run", "attention", *words, *files, "--out", f"o={self.path('o')}", "--out",
                               f"lse={self.path('lse')}", "--check", "--json")
                said = json.loads(text)
                self.assertTrue(said["check"]["ok"], text)
                self.assertEqual(said["check"]["rows"], 10)
                shape, descr, got = read_npy(self.path("o"))
                self.assertEqual((shape, descr), ((1, 5, 2, 8) if transposed else self.shape_q, "<f4"))
                self.assertEqual(read_npy(self.path("lse"))[0], (1, 2, 5))
                if transposed:
                    got = self.swap(got, (1, 5, 2, 8))
                self.assertClose(got, attention(self.q, self.k, self.v, self.shape_q, self.shape_k, causal), 1e-5)

    def test_values_that_are_columns_of_the_keys(self):
        for order, name in (((), "bhsd"), (("layout=bshd",), "bshd")):
            self.write_attention(transposed=bool(order))
            got = {}
            for columns in (8, 5):
                said = json.loads(self.ok("run", "attention", f"v_in_k={columns}", *order, "--in", f"q={self.path('q')}",
                                          "--in", f"k={self.path('k')}", "--out", f"o={self.path('o')}", "--check",
                                          "--json"))
                self.assertTrue(said["check"]["ok"], said)
                shape, _, got[columns] = read_npy(self.path("o"))
                self.assertEqual(shape, (1, 5, 2, columns) if order else (1, 2, 5, columns), name)
            self.assertEqual(list(got[5]), [x for i, x in enumerate(got[8]) if i % 8 < 5])
            whole = self.swap(got[8], (1, 5, 2, 8)) if order else got[8]
            self.assertClose(whole, attention(self.q, self.k, self.k, self.shape_q, self.shape_k), 1e-5)

    def test_a_prefix_that_all_sequences_share(self):
        self.write_attention()
        own = (1, 2, 4, 8)  # of seven keys, the first three are the prefix
        for name in ("k", "v"):
            values = getattr(self, name)
            for part, first, count in (("prefix_" + name, 0, 3), (name, 3, 4)):
                rows = sum((values[(h * 7 + first) * 8:(h * 7 + first + count) * 8] for h in range(2)), [])
                write_npy(self.path(part), (1, 2, count, 8), rows)
        files = sum((["--in", f"{n}={self.path(n)}"] for n in ("q", "k", "v", "prefix_k", "prefix_v")), [])
        said = json.loads(self.ok("run", "attention_cascade", *files, "--out", f"o={self.path('o')}", "--check", "--json"))
        self.assertTrue(said["check"]["ok"], said)
        self.assertClose(read_npy(self.path("o"))[2], attention(self.q, self.k, self.v, self.shape_q, self.shape_k), 1e-5)
        write_npy(self.path("prefix_v"), own, self.normal(64))
        done = clattn("run", "attention_cascade", *files)
        self.assertEqual(done.returncode, 2)
        self.assertIn("prefix_v: want dimensions 1, 2, 3, 8", done.stderr)

    def test_gradients_of_attention_from_what_the_forward_call_left(self):
        files = self.write_attention()
        self.ok("run", "attention", *files, "--out", f"o={self.path('o')}", "--out", f"lse={self.path('lse')}")
        dout = self.normal(math.prod(self.shape_q), 7)
        write_npy(self.path("dout"), self.shape_q, dout)
        for name in ("o", "lse", "dout"):
            files += ["--in", f"{name}={self.path(name)}"]
        said = json.loads(self.ok("run", "attention_backward", *files, "--out", f"dv={self.path('dv')}", "--check", "--json"))
        self.assertTrue(said["check"]["ok"], said)
        self.assertEqual([output["name"] for output in said["outputs"]], ["dq", "dk", "dv"])
        dv, (heads, rows, keys, width) = read_npy(self.path("dv"))[2], (2, 5, 7, 8)
        for h in range(heads):  # probabilities of a query add up to 1
            got = [sum(dv[(h * keys + j) * width + c] for j in range(keys)) for c in range(width)]
            self.assertClose(got, [sum(dout[(h * rows + i) * width + c] for i in range(rows)) for c in range(width)], 1e-5)
        write_npy(self.path("lse"), self.shape_q[:3], [x + 0.01 for x in read_npy(self.path("lse"))[2]])
        self.assertEqual(clattn("run", "attention_backward", *files, "--check").returncode, 1)

    def test_a_forced_variant_is_the_one_that_runs(self):
        said = json.loads(self.ok("run", "attention", *self.write_attention(), "--variant", "fused_fma", "--json"))
        self.assertEqual(said["variant"], "fused_fma")

    def test_bf16_comes_as_u2_and_goes_as_u2(self):
        values = [bf16(x) for x in self.normal(3 * 33)]
        for stored in (None, "bfloat16"):
            write_npy(self.path("x"), (3, 33), values, "<u2", stored_descr=stored)
            self.ok("run", "softmax", "dtype=bf16", "--in", f"x={self.path('x')}", "--out", f"y={self.path('y')}", "--check")
            shape, descr, got = read_npy(self.path("y"))
            self.assertEqual((shape, descr), ((3, 33), "<u2"))
            for row in range(3):
                line = [math.exp(from_bf16(x)) for x in values[row * 33:][:33]]
                self.assertClose([from_bf16(y) for y in got[row * 33:][:33]], [x / sum(line) for x in line], 4e-3)

    def test_dtype_converts_and_out_dtype_widens(self):
        write_npy(self.path("x"), (4, 5), self.normal(20))
        said = json.loads(self.ok("run", "softmax", "dtype=f16", "out_dtype=f32", "axis=0", "--in", f"x={self.path('x')}",
                                  "--out", f"y={self.path('y')}", "--json"))
        self.assertEqual(said["outputs"], [{"name": "y", "dtype": "f32", "shape": [4, 5]}])
        got = read_npy(self.path("y"))[2]
        for column in range(5):
            self.assertAlmostEqual(sum(got[column::5]), 1, 5)

    def test_states_of_parts_merge_into_that_of_the_whole(self):
        values = self.normal(40)
        write_npy(self.path("x"), (1, 40), values)
        merge = []
        for i, part in enumerate((values[:11], values[11:])):
            write_npy(self.path(f"x{i}"), (1, len(part)), part, "<f4")
            self.ok("run", "softmax_state", "--in", f"x={self.path(f'x{i}')}", "--out", f"m={self.path(f'm{i}')}", "--out",
                    f"l={self.path(f'l{i}')}")
            merge += ["--in", f"m{i}={self.path(f'm{i}')}", "--in", f"l{i}={self.path(f'l{i}')}"]
        self.ok("run", "softmax_merge", *merge, "--out", f"m={self.path('m')}", "--out", f"l={self.path('l')}", "--check")
        self.assertEqual(read_npy(self.path("m"))[2][0], max(values))
        self.assertClose(read_npy(self.path("l"))[2], [sum(math.exp(x - max(values)) for x in values)], 1e-4)

    def test_a_product_with_transposes(self):
        a, b = self.normal(6, 1), self.normal(12, 2)
        write_npy(self.path("a"), (3, 2), a)
        write_npy(self.path("b"), (4, 3), b)
        self.ok("run", "gemm", "transpose_a=1", "transpose_b=1", "alpha=2", "--in", f"a={self.path('a')}", "--in",
                f"b={self.path('b')}", "--out", f"c={self.path('c')}", "--check")
        shape, _, got = read_npy(self.path("c"))
        self.assertEqual(shape, (2, 4))
        want = [2 * sum(a[k * 2 + i] * b[j * 3 + k] for k in range(3)) for i in range(2) for j in range(4)]
        self.assertClose(got, want, 1e-5)

    def test_rotation_and_append_to_pages(self):
        k, page = self.normal(3 * 2, 1), 4
        write_npy(self.path("k"), (1, 1, 3, 2), k)  # sequences of 1 and 2 rows, of one pair each, behind 5 and 2 others
        write_npy(self.path("offsets"), (3,), [0, 1, 3], "<i8")
        write_npy(self.path("lengths"), (2,), [5, 2], "<i4")
        write_npy(self.path("table"), (2, 2), [3, 1, 0, -1], "<i4")
        self.ok("run", "rope_append", f"page_size={page}", "--in", f"k={self.path('k')}", "--in",
                f"q_offsets={self.path('offsets')}", "--in", f"k_lengths={self.path('lengths')}", "--in",
                f"page_table={self.path('table')}", "--out", f"k_cache={self.path('cache')}", "--check")
        shape, _, got = read_npy(self.path("cache"))
        self.assertEqual(shape, (4, page, 1, 2))
        rows = {(1, 1): (0, 5), (0, 2): (1, 2), (0, 3): (2, 3)}  # page and row: new row and position
        for at in range(4 * page):
            a, b = got[2 * at:2 * at + 2]
            if divmod(at, page) in rows:
                row, angle = rows[divmod(at, page)]
                x, y = k[2 * row:2 * row + 2]
                self.assertClose((a, b), (x * math.cos(angle) - y * math.sin(angle), y * math.cos(angle) + x * math.sin(angle)),
                                 1e-6)
            else:
                self.assertTrue(math.isnan(a) and math.isnan(b))

    def test_append_to_a_cache_of_codes(self):
        k, v = self.normal(2 * 3 * 40, 1), self.normal(2 * 3 * 8, 2)
        write_npy(self.path("k"), (1, 2, 3, 40), k)
        write_npy(self.path("v"), (1, 2, 3, 8), v)
        write_npy(self.path("v_scales"), (2,), [0.5, 0.25])
        write_npy(self.path("lengths"), (1,), [2], "<i4")
        outs = ("k_cache", "k_scales", "k_values", "v_cache", "v_values")
        said = json.loads(self.ok("run", "rope_append", "rotary_dim=0", "k_dtype=i8", "v_dtype=f8", "cache_rows=6",
                                  *sum((["--in", f"{n}={self.path(n)}"] for n in ("k", "v", "v_scales")), []), "--in",
                                  f"k_lengths={self.path('lengths')}", *sum((["--out", f"{n}={self.path(n)}"] for n in outs), []),
                                  "--check", "--json"))
        self.assertTrue(said["check"]["ok"], said)
        got = {n: read_npy(self.path(n)) for n in outs}
        self.assertEqual([got[n][0] for n in outs], [(1, 2, 6, 40), (1, 2, 6, 2), (1, 2, 6, 40), (1, 2, 6, 8), (1, 2, 6, 8)])
        for h, row, c in indices_of((2, 6, 40)):
            at = (h * 6 + row) * 40 + c
            if not 2 <= row < 5:
                self.assertTrue(math.isnan(got["k_values"][2][at]))
                continue
            scale = got["k_scales"][2][(h * 6 + row) * 2 + c // 32]
            self.assertEqual(got["k_values"][2][at], got["k_cache"][2][at] * scale)
            self.assertLessEqual(abs(got["k_values"][2][at] - k[(h * 3 + row - 2) * 40 + c]), scale / 2 * 1.001)
        for h, row, c in indices_of((2, 3, 8)):
            x, y = v[(h * 3 + row) * 8 + c], got["v_values"][2][(h * 6 + row + 2) * 8 + c]
            self.assertLessEqual(abs(x - y), max(abs(x) / 16, (0.5, 0.25)[h] / 512) * 1.001)
        done = clattn("run", "rope_append", "v_dtype=f8", "--in", f"v={self.path('v')}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("wants a tensor 'v_scales' of f32", done.stderr)

    def test_steps_of_training(self):
        grad, param = self.normal(40, 1), self.normal(40, 2)
        write_npy(self.path("grad"), (5, 8), grad, "<f2")
        write_npy(self.path("param"), (5, 8), param)
        self.ok("run", "unscale", "scale=8", "tensors=3", "--in", f"x={self.path('grad')}", "--out", f"y={self.path('y')}",
                "--out", f"overflow={self.path('flag')}", "--check")
        self.assertEqual(list(read_npy(self.path("flag"))[2]), [0])
        self.assertClose(read_npy(self.path("y"))[2], [g / 8 for g in grad], 1e-3)
        self.ok("run", "sgd", "lr=0.5", "scale=8", "copy=f16", "--in", f"grad={self.path('grad')}", "--in",
                f"param={self.path('param')}", "--out", f"param={self.path('p')}", "--out", f"copy={self.path('c')}", "--check")
        self.assertClose(read_npy(self.path("p"))[2], [p - g / 16 for p, g in zip(param, grad)], 1e-3)
        self.assertClose(read_npy(self.path("c"))[2], [p - g / 16 for p, g in zip(param, grad)], 3e-3)
        self.ok("run", "adamw", "lr=0.5", "steps=0", "weight_decay=0", "--in", f"grad={self.path('grad')}", "--in",
                f"param={self.path('param')}", "--out", f"param={self.path('p')}", "--out", f"m={self.path('m')}", "--check")
        want = [p - 0.5 * math.copysign(1, g) for p, g in zip(param, grad)]  # the first step takes the sign alone
        self.assertClose(read_npy(self.path("p"))[2], want, 1e-3)
        self.ok("run", "cast", "out_dtype=bf16", "--in", f"x={self.path('param')}", "--out", f"y={self.path('y')}", "--check")


class Modifiers(Case):
    """Each modifier of attention through the command, against its definition and the oracle."""
    shape_q, shape_k = (2, 2, 5, 8), (2, 2, 7, 8)

    def setUp(self):
        super().setUp()
        for seed, (name, shape) in enumerate([("q", self.shape_q), ("k", self.shape_k), ("v", self.shape_k)]):
            values = self.normal(math.prod(shape), seed)
            setattr(self, name, values)
            write_npy(self.path(name), shape, values)

    def run_with(self, *words, shape=None, **extra):
        """extra: name=(shape, values, descr); values of o in [B,H,N,D]."""
        files = []
        for name in ("q", "k", "v"):
            if name not in extra:
                files += ["--in", f"{name}={self.path(name)}"]
        for name, (dims, values, descr) in extra.items():
            write_npy(self.path(f"in_{name}"), dims, values, descr)
            files += ["--in", f"{name}={self.path(f'in_{name}')}"]
        said = json.loads(self.ok("run", "attention", *words, *files, "--out", f"o={self.path('o')}", "--check", "--json"))
        self.assertTrue(said["check"]["ok"], said)
        got_shape, _, got = read_npy(self.path("o"))
        self.assertEqual(got_shape, shape or self.shape_q)
        return got

    def assertAttends(self, got, tolerance=1e-5, **how):
        self.assertClose(got, attention(self.q, self.k, self.v, self.shape_q, self.shape_k, **how), tolerance)

    def test_mask_of_bytes_or_bools_in_any_broadcast(self):
        for shape, descr in (((2, 2, 5, 7), "|b1"), ((2, 1, 1, 7), "|u1"), ((1, 1, 5, 7), "|b1")):
            dice = random.Random(3)
            mask = {index: dice.random() < 0.6 for index in indices_of(shape)}
            got = self.run_with(mask=(shape, [3 * shown if descr == "|u1" else shown for shown in mask.values()], descr))
            self.assertAttends(got, sees=lambda *at: mask[tuple(min(x, n - 1) for x, n in zip(at, shape))])

    def test_bias_of_either_type(self):
        for words, descr, tolerance in (((), "<f4", 1e-5), (("bias_dtype=f32", "dtype=f16", "out_dtype=f32"), "<f4", 5e-3)):
            bias = self.normal(2 * 5 * 7, 9)
            got = self.run_with(*words, bias=((1, 2, 5, 7), bias, descr))
            self.assertAttends(got, tolerance, change=lambda b, h, i, j, s: s + bias[(h * 5 + i) * 7 + j])

    def test_alibi_sinks_and_cap(self):
        slopes = [1 / 16, 1 / 256]
        want = dict(change=lambda b, h, i, j, s: 2 * math.tanh(s / 2) + slopes[h] * (j - (i + 2)), sinks=[0.5, -1.0])
        words, sinks = ("softcap=2",), ((2,), [0.5, -1.0], "<f4")
        self.assertAttends(self.run_with(*words, sinks=sinks, alibi=((2,), slopes, "<f2")), **want)
        self.assertAttends(self.run_with(*words, "alibi=standard", sinks=sinks), **want)

    def test_windows_lengths_and_diagonals(self):
        got = self.run_with("window=2,1", "diagonal=1")
        self.assertAttends(got, sees=lambda b, h, i, j: i + 1 - 2 <= j <= i + 1 + 1)
        got = self.run_with(q_lengths=((2,), [5, 3], "<i4"), k_lengths=((2,), [4, 7], "<i8"))
        self.assertAttends(got, sees=lambda b, h, i, j: i < (5, 3)[b] and j < (4, 7)[b])
        self.assertAttends(self.run_with("max_k=4"), sees=lambda b, h, i, j: j < 4)

    def as_ragged(self, values, rows, shape):
        """[B,H,N,D] to [1,H,total,D], of sequence b the first rows[b]."""
        b, h, n, d = shape
        return [values[((s * h + k) * n + i) * d + c] for k in range(h) for s in range(b) for i in range(rows[s])
                for c in range(d)]

    def test_ragged_sequences_in_either_layout(self):
        nq, nk = (5, 2), (4, 7)
        shapes = {"q": (1, 2, 7, 8), "k": (1, 2, 11, 8), "v": (1, 2, 11, 8)}
        offsets = {"q_offsets": ((3,), [0, 5, 7], "<i4"), "k_offsets": ((3,), [0, 4, 11], "<i8")}
        lists = {name: self.as_ragged(getattr(self, name), nq if name == "q" else nk, self.shape_q if name == "q" else
                                      self.shape_k) for name in shapes}
        want = attention(self.q, self.k, self.v, self.shape_q, self.shape_k,
                         sees=lambda b, h, i, j: j <= i + nk[b] - nq[b] and j < nk[b])
        want = self.as_ragged(want, nq, self.shape_q)
        inputs = {name: (shape, lists[name], "<f4") for name, shape in shapes.items()}
        self.assertClose(self.run_with("causal=bottom_right", shape=(1, 2, 7, 8), **inputs, **offsets), want, 1e-5)
        inputs = {name: ((1, shape[2], 2, 8), Run.swap(lists[name], shape), "<f4") for name, shape in shapes.items()}
        got = self.run_with("causal=bottom_right", "layout=bshd", shape=(1, 7, 2, 8), **inputs, **offsets)
        self.assertClose(Run.swap(got, (1, 7, 2, 8)), want, 1e-5)

    def test_pages_in_either_layout(self):
        order, page, length = [[4, 1], [0, 3]], 4, (7, 5)
        for words, shape in (((), (5, page, 2, 8)), (("page_layout=hnd",), (5, 2, page, 8))):
            stored = {}
            for name in ("k", "v"):
                values = [math.nan] * (5 * page * 2 * 8)
                strides = strides_of(shape, False)
                if not words:
                    strides[1], strides[2] = strides[2], strides[1]
                for b, h, j, c in indices_of(self.shape_k):
                    if j < length[b]:
                        index = (order[b][j // page], h, j % page, c)
                        values[sum(i * s for i, s in zip(index, strides))] = getattr(self, name)[((b * 2 + h) * 7 + j) * 8 + c]
                stored[name] = (shape, values, "<f4")
            got = self.run_with(*words, **stored, page_table=((2, 2), sum(order, []), "<i4"),
                                k_lengths=((2,), length, "<i4"))
            self.assertAttends(got, sees=lambda b, h, i, j: j < length[b])

    def test_quantised_keys_and_values(self):
        dice, rows = random.Random(5), 2 * 2 * 7
        codes = [dice.randint(-128, 127) for _ in range(rows * 8)]
        nibbles = [dice.randint(0, 15) for _ in range(rows * 8)]
        scales = [dice.randint(1, 31) / 1024 for _ in range(rows)]
        zeros = [dice.randint(-8, 40) / 4 for _ in range(rows)]
        self.k = [code * scales[i // 8] for i, code in enumerate(codes)]
        self.v = [(code - zeros[i // 8]) * scales[i // 8] for i, code in enumerate(nibbles)]
        numbers, packed = (2, 2, 7, 1), [low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2])]
        got = self.run_with("k_dtype=i8", "v_dtype=i4", "v_block=64", k=(self.shape_k, codes, "|i1"),
                            k_scales=(numbers, scales, "<f4"), v=((2, 2, 7, 4), packed, "|u1"),
                            v_scales=(numbers, scales, "<f2"), v_zeros=(numbers, zeros, "<f2"))
        self.assertAttends(got)
        fp8 = [dice.randint(8, 0x77) | dice.randint(0, 1) << 7 for _ in range(rows * 8)]
        self.v = [(1 - 2 * (b >> 7)) * 2.0 ** ((b >> 3 & 15) - 7) * (1 + b % 8 / 8) * (i // 56 % 2 + 1) / 64
                  for i, b in enumerate(fp8)]
        got = self.run_with("k_dtype=i8", "v_dtype=f8", k=(self.shape_k, codes, "|i1"), k_scales=(numbers, scales, "<f2"),
                            v=(self.shape_k, fp8, "|u1"), v_scales=((2,), [1 / 64, 2 / 64], "<f4"))
        self.assertAttends(got, 5e-5)

    def test_wrong_inputs_are_2_and_what_is_beyond_the_library_is_3(self):
        wrong = [
            (2, "element type f32, want u8 or bool", [], {"mask": ((2, 2, 5, 7), [0.0] * 140, "<f4")}),
            (2, "mask: dims[3] = 6", [], {"mask": ((1, 1, 5, 6), [1] * 30, "|u1")}),
            (2, "mask: rank is 2", [], {"mask": ((5, 7), [1] * 35, "|u1")}),
            (2, "bias: element type i32", [], {"bias": ((1, 1, 1, 7), [1] * 7, "<i4")}),
            (2, "alibi: dims[0] = 3", [], {"alibi": ((3,), [0.0] * 3, "<f4")}),
            (2, "alibi=standard", ["alibi=standard"], {"alibi": ((2,), [0.0] * 2, "<f4")}),
            (2, "alibi=steep", ["alibi=steep"], {}),
            (2, "sinks: rank is 2", [], {"sinks": ((1, 2), [0.0] * 2, "<f4")}),
            (2, "k_lengths: element type f32", [], {"k_lengths": ((2,), [1.0] * 2, "<f4")}),
            (2, "k_lengths: 4294967296 at 1", [], {"k_lengths": ((2,), [1, 1 << 32], "<i8")}),
            (2, "k_lengths[1] = 8, want 0 to 7", [], {"k_lengths": ((2,), [1, 8], "<i4")}),
            (2, "q_lengths[0] = -1", [], {"q_lengths": ((2,), [-1, 5], "<i4")}),
            (2, "k_lengths: 2 dimensions", [], {"k_lengths": ((1, 2), [1, 1], "<i4")}),
            (2, "q: dims[0] = 2, with q_offsets", [], {"q_offsets": ((2,), [0, 5], "<i4")}),
            (2, "k_offsets[2] = 3", [], {"k_offsets": ((3,), [0, 5, 3], "<i4")}),
            (2, "page_table[1][0] = 2, k has 2 pages; without k_lengths every entry", [],
             {"page_table": ((2, 1), [0, 2], "<i4")}),
            (2, "k: 4 dimensions of f32, want 4 of i8", ["k_dtype=i8"], {}),
            (2, "k_dtype=i9", ["k_dtype=i9"], {}),
            (2, "v: given", ["v_in_k=4"], {}),
            (2, "v: the first 9 columns of k, which has 8", ["v_in_k=9"],
             {name: ((1, 1, 1, 8), [0.0] * 8, "<f4") for name in ("q", "k")}),
            (2, "k_block=16", ["k_dtype=i8", "k_block=16"], {}),
            (2, "v holds no codes without v_dtype=", [], {"v_scales": ((2, 2, 7, 1), [0.5] * 28, "<f2")}),
            (2, "maks", [], {"maks": ((2, 2, 5, 7), [1] * 140, "|u1")}),
            (2, "window=3", ["window=3"], {}),
            (2, "window_left: -2", ["window=-2,0"], {}),
            (2, "softcap: -1", ["softcap=-1"], {}),
            (2, "max_q: -1", ["max_q=-1"], {}),
            (2, "no setting 'page_layout'", ["page_layout=hnd"], {}),
            (2, "no setting 'mask'", ["mask=random"], {}),
            (3, "head dim 577", [], {name: ((1, 1, 1, 577), [0.0] * 577, "<f4") for name in ("q", "k", "v")}),
        ]
        for code, reason, words, extra in wrong:
            with self.subTest(reason=reason):
                files = [] if "q" in extra else sum((["--in", f"{name}={self.path(name)}"] for name in "qkv"), [])
                for name, (shape, values, descr) in extra.items():
                    write_npy(self.path("in_" + name), shape, values, descr)
                    files += ["--in", f"{name}={self.path('in_' + name)}"]
                done = clattn("run", "attention", *words, *files)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(reason, done.stderr)


class Misuse(Case):
    def test_wrong_usage_is_2_and_says_why(self):
        write_npy(self.path("x"), (2, 3), [0.0] * 6)
        write_npy(self.path("y"), (3, 2), [0.0] * 6)
        write_npy(self.path("z"), (2, 2), [0.0] * 4)
        write_npy(self.path("i"), (2, 3), [0] * 6, "<i4")
        with open(self.path("bad"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00\xff\xff{'descr': '<f4'")
        x, out = f"x={self.path('x')}", self.path("out")
        wrong = {
            (): "COMMAND",
            ("fly",): "fly",
            ("info", "--fast"): "--fast",
            ("info", "attention"): "no operation",
            ("run",): "which operation",
            ("tune", "softmax", "--variant", "nope"): "nope",
            ("run", "sorting"): "softmax_merge gemm",
            ("run", "softmax"): "'x'",
            ("run", "softmax", "--in"): "wants a value",
            ("run", "softmax", "--in", "x"): "NAME=FILE",
            ("run", "softmax", "--in", x, "--in", x): "twice",
            ("run", "softmax", "--in", f"x={self.path('none')}"): "No such file",
            ("run", "softmax", "--in", f"x={self.path('bad')}"): "cut off",
            ("run", "softmax", "--in", f"x={self.path('i')}"): "i32",
            ("run", "softmax", "--in", x, "axis=2"): "axis=2",
            ("run", "softmax", "--in", x, "axis=one"): "axis=one",
            ("run", "softmax", "--in", x, "colour=red"): "'colour'; with these inputs there are: dtype axis",
            ("check", "softmax", "colour=red"): "it takes none",
            ("bench", "softmax", "--shape", "2,3", "colour=red"): "'colour'; with these inputs there are:",
            ("run", "softmax", "--in", x, "dtype=f8"): "f8",
            ("run", "softmax", "--in", x, "--out", f"z={out}"): "'z'; with these inputs there are: y",
            ("run", "softmax", "--in", "x=/dev/zero"): "does not begin like a .npy file",
            ("run", "softmax_state", "--in", x, "--out", f"m={out}", "--out", f"l={self.path('./out')}"): "m and l cannot",
            ("run", "softmax", "--in", x, "--out", f"y={self.folder.name}"): "Is a directory",
            ("bench", "--suite", "seeds", "--csv", self.path("no/folder")): "No such file",
            ("bench", "--suite", "seeds", "--csv", out, "--plot", out): "--csv and --plot cannot both",
            ("bench", "--suite", "seeds", "--plot", self.folder.name): "Is a directory",
            ("run", "softmax", "--in", x, "--out", f"y={self.path('no/folder')}"): "No such file",
            ("run", "softmax", "--in", x, "--variant", "magic"): "three_pass",
            ("run", "attention", "--in", f"q={self.path('x')}"): "dimensions",
            ("run", "gemm", "--in", f"a={self.path('x')}", "--in", f"b={self.path('x')}"): "a",
            ("run", "gemm", "--in", f"a={self.path('x')}", "--in", f"b={self.path('y')}", "--in", f"c={self.path('z')}"): "beta",
            ("run", "rms_norm", "--in", x, "--in", f"wieght={self.path('y')}"): "'wieght'",
            ("run", "gemm", "beta=1", "--in", f"a={self.path('x')}", "--in", f"b={self.path('x')}"): "'c'",
            ("check", "--suite", "slow"): "slow",
            ("check", "--dtype", "f64"): "f64",
            ("check", "sorting"): "softmax_merge gemm",
            ("bench", "--shape", "1,2"): "one operation",
            ("bench", "attention", "--shape", "1,2"): "B,HQ,HKV",
            ("bench", "attention", "--shape", "1,2,x"): "1,2,x",
            ("bench", "attention", "--suite", "everything"): "everything",
            ("bench", "--suite", "host", "--shape", "1"): "exclude",
            ("bench", "attention", "--shape", "1,3,2,8,8,8"): "3 heads",
            ("bench", "attention", "--shape", "1,2,2,8,8,8", "mask=spotted"): "mask=spotted",
            ("bench", "attention", "--shape", "1,2,2,8,8,8", "mask=random", "mask_dims=1,1,n"): "mask_dims=1,1,n",
            ("bench", "attention", "--shape", "2,2,2,8,8,8", "ragged=3"): "B of --shape",
            ("bench", "attention", "--shape", "1,2,2,8,8,8", "ragged=5,6"): "q_offsets[2] = 11",
            ("bench", "attention", "--shape", "2,2,2,8,8,8", "k_lengths=1,2,3"): "k_lengths=1,2,3",
            ("bench", "attention", "--shape", "1,2,2,8,8,8", "paged=0"): "paged=0",
            ("ring", "attention"): "no operation",
            ("ring", "ranks=0"): "ranks=0",
            ("ring", "ranks=two"): "ranks=two",
            ("ring", "ranks=1" + 16 * ",2"): "up to 16",
            ("ring", "--shape", "1,2,3"): "B,HQ,HKV,N,D",
            ("ring", "--dtype", "i8"): "i8",
            ("ring", "split=halves"): "split=halves",
            ("ring", "speed=9"): "speed",
            ("ring", "--shape", "1,3,2,8,8", "ranks=1"): "3",
            ("ring", "--dtype", "f32", "--shape", "1,1,1,1099511627776,4194304", "ranks=1"): "too large",
        }
        for words, reason in wrong.items():
            with self.subTest(words=words):
                done = clattn(*words)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertIn(reason, done.stderr)
        self.assertFalse(os.path.exists(out))

    def test_no_device_is_3(self):
        write_npy(self.path("x"), (2, 3), [0.0] * 6)
        no_platform = {"OCL_ICD_VENDORS": self.folder.name, "OCL_ICD_FILENAMES": ""}
        for words in (("info",), ("check",), ("bench",), ("tune",), ("run", "softmax", "--in", f"x={self.path('x')}")):
            self.assertEqual(clattn(*words, env=no_platform).returncode, 3)
            self.assertEqual(clattn(*words, "--device", "no such device").returncode, 3)

    def test_a_wrong_environment_is_2_and_says_why(self):
        wrong = {"CLATTN_CAPS": "warp_drive", "CLATTN_LOG": "loud", "CLATTN_CL_DIR": "/no/kernels"}
        for variable, value in wrong.items():
            for words in (("info",), ("info", "--json"), ("check", "softmax")):
                done = clattn(*words, env={variable: value})
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(value, done.stderr)
                self.assertIn(variable, done.stderr)

    def test_a_folder_without_kernels_is_named(self):
        write_npy(self.path("x"), (2, 3), [0.0] * 6)
        done = clattn("run", "softmax", "--in", f"x={self.path('x')}", env={"CLATTN_CL_DIR": self.folder.name})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, f"CLATTN_CL_DIR.*softmax.cl.*{self.folder.name}")

    def test_a_full_disk_is_3_and_no_question_of_usage(self):
        write_npy(self.path("x"), (2, 3), [0.0] * 6)
        run = ("run", "softmax", "--in", f"x={self.path('x')}")
        bench = ("bench", "softmax", "--shape", "2,3")
        for words in ((*run, "--out", "y=/dev/full"), (*bench, "--csv", "/dev/full"), (*bench, "--plot", "/dev/full")):
            done = clattn(*words)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("/dev/full could not be written: No space left", done.stderr)
            self.assertNotIn("--help", done.stderr)
        with open("/dev/full", "w", encoding="ascii") as full:
            for words in (run, ("--help",), ("info", "--json")):
                done = subprocess.run([CLATTN, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn("standard output could not be written", done.stderr)

    def test_an_endless_file_is_read_as_far_as_its_header_says(self):
        write_npy(self.path("x"), (2, 3), [0.0] * 6)
        endless = f"cat '{self.path('x')}' /dev/zero | '{CLATTN}' run softmax --in x=/dev/stdin"
        done = subprocess.run(["sh", "-c", endless], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there are more", done.stderr)

    def test_a_file_that_is_there_is_left_alone_by_what_is_refused(self):
        write_npy(self.path("x"), (2, 3), [0.0] * 6)
        run = ("run", "softmax_state", "--in", f"x={self.path('x')}", "--out", f"m={self.path('m')}")
        with open(self.path("m"), "w", encoding="ascii") as file:
            file.write("mine")
        self.assertEqual(clattn(*run, "--out", f"l={self.path('no/folder')}").returncode, 2)
        with open(self.path("m"), encoding="ascii") as file:
            self.assertEqual(file.read(), "mine")
        os.link(self.path("m"), self.path("l"))
        self.assertIn("cannot both", clattn(*run, "--out", f"l={self.path('l')}").stderr)
        self.ok(*run, "--out", "l=/dev/null")

    def test_every_command_has_help_with_an_example(self):
        for words in ((), ("info",), ("run",), ("check",), ("bench",), ("ring",), ("tune",)):
            self.assertIn("Example", self.ok(*words, "--help"))
        self.assertRegex(self.ok("--version"), r"^clattn \d+\.\d+\.\d+$")


class Reports(Case):
    def test_info_names_devices_and_reasons(self):
        said = json.loads(self.ok("info", "--json"))
        self.assertGreaterEqual(len(said["devices"]), 1)
        for device in said["devices"]:
            self.assertGreater(device["compute_units"], 0)
            for choice in device["choices"]:
                self.assertTrue(choice["variant"], choice)
                self.assertTrue(all(r["reason"] for r in choice["refused"]), choice)
                others = [r["variant"] for r in choice["refused"]] + choice["less_preferred"]
                self.assertNotIn(choice["variant"], others)
                if choice["op"] == "gemm":
                    self.assertIn("clblast", [choice["variant"], *others])
        self.assertIn(said["devices"][0]["name"], self.ok("info"))

    def database(self, *rows):
        with open(self.path("tuning.json"), "w") as file:
            json.dump({"rows": rows}, file)
        return {"CLATTN_TUNING_DB": self.path("tuning.json")}

    def test_info_shows_the_rows_of_a_database(self):
        env = self.database({"op": "softmax", "variant": "online", "dtype": "f32", "min_size": 65, "parameters": {"vector": 4}},
                            {"op": "gemm", "variant": "tiled_fma", "driver": "none", "parameters": {}},
                            {"op": "attention", "prefer": "two_pass_fma", "keys": [40, 50]},
                            {"device": "no such device", "op": "gemm", "variant": "tiled_fma", "parameters": {}})
        for device in json.loads(self.ok("info", "--json", env=env))["devices"]:
            rows = {row["op"]: row for row in device["tuning_rows"] if not row["shipped"]}
            self.assertEqual(sorted(rows), ["attention", "gemm", "softmax"])
            self.assertEqual([rows[op]["ignored"] for op in sorted(rows)], ["", "measured with another driver", ""])
            self.assertEqual((rows["softmax"]["min_size"], rows["softmax"]["parameters"]), (65, "vector=4"))
            self.assertEqual((rows["attention"]["prefer"], rows["attention"]["problems"]), ("two_pass_fma", "keys=40..50"))
        said = self.ok("info", env=env)
        self.assertIn("two_pass_fma", said[said.index("tuning rows:"):])
        self.assertIn("ignored, measured with another driver", said)

    def test_attention_runs_what_a_row_prefers(self):
        env = self.database({"op": "attention", "prefer": "two_pass_fma", "keys": [40, 50]})
        for keys, preferred in ((48, True), (56, False)):
            said = json.loads(self.ok("bench", "attention", "--shape", f"1,2,2,48,{keys},64", "--json", env=env))
            self.assertEqual(said["results"][0]["variant"] == "two_pass_fma", preferred)
            self.assertTrue(said["results"][0]["ok"])

    def test_check_covers_every_accepted_variant(self):
        said = json.loads(self.ok("check", "softmax_state", "logsumexp", "--dtype", "f32", "--json"))
        self.assertTrue(all(r["ok"] and r["max_abs"] is not None and r["median_s"] > 0 for r in said["results"]))
        self.assertGreaterEqual(len({r["variant"] for r in said["results"]}), 3)

    def test_an_interrupted_check_prints_what_it_has(self):
        terminal, end = pty.openpty()
        check = subprocess.Popen([CLATTN, "check", "softmax"], stdout=subprocess.PIPE, stderr=end, text=True)
        os.close(end)
        shown = b""
        while not re.search(rb"\] [1-9]\d*/", shown):  # the bar tells that a first case is done
            shown += os.read(terminal, 4096)
        check.send_signal(signal.SIGTERM)
        table, _ = check.communicate(timeout=120)
        os.close(terminal)
        self.assertEqual(check.returncode, -signal.SIGTERM)
        self.assertRegex(table, r"(?m)^softmax .* ok$")
        self.assertRegex(table, r"[1-9]\d* results, 0 wrong")

    def test_bench_writes_json_csv_and_svg(self):
        svg, table = self.path("plot.svg"), self.path("table.csv")
        said = json.loads(self.ok("bench", "softmax", "--shape", "64,256", "--vs", "three_pass", "--json", "--plot", svg,
                                  "--csv", table))
        self.assertEqual(len(said["results"]), 2)
        for result in said["results"]:
            self.assertTrue(result["ok"])
            self.assertIsNone(result["note"])
            self.assertGreaterEqual(result["runs"], 20)
            self.assertGreaterEqual(result["peak_device_bytes"], 2 * 64 * 256 * 4)
            for key in ("max_abs", "max_rel", "median_s", "gb_s", "share", "ratio"):
                self.assertGreater(result[key], 0, key)
        self.assertAlmostEqual(said["results"][0]["ratio"] * said["results"][1]["ratio"], 1, 6)
        root = xml.parse(svg).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        self.assertEqual(len(root.findall(".//{*}polyline")), 4)
        with open(table, newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([r["variant"] for r in rows], [r["variant"] for r in said["results"]])

    def test_bench_goes_through_lists_of_parameters_and_past_one_that_is_refused(self):
        lists = "group=64;group=-1;group=128,vector=1;"
        words = ("bench", "softmax", "--shape", "64,256", "--variant", "online", "--parameters", lists)
        done = clattn(*words)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("group must be", done.stderr)
        self.assertRegex(done.stdout, r"(?m)^softmax .* ok  group=64$")
        self.assertRegex(done.stdout, r"(?m)^softmax .* ok  group=128,vector=1$")
        self.assertEqual(len(re.findall(r"(?m)^softmax ", done.stdout)), 2)

    def test_bench_takes_an_empty_list_of_parameters_for_the_choice_of_the_library(self):
        for lists, rows in (("", 1), (";", 1), (";group=64", 2)):
            said = self.ok("bench", "softmax", "--shape", "64,256", "--variant", "online", "--parameters", lists)
            self.assertEqual(len(re.findall(r"(?m)^softmax .* ok", said)), rows, said)

    def test_ranks_are_measured_beside_one_device(self):
        for more in ((), ("backward=1", "overlap=0", "split=contiguous")):
            said = self.ok("ring", "--shape", "1,2,1,100,64", "ranks=1,3", "runs=1", *more)
            rows = [line.split() for line in said.splitlines() if re.match(r" +[13] ", line)]
            self.assertEqual([row[0] for row in rows], ["1", "3"], said)
            self.assertIn("one device", said)

    def test_hidden_allocations_count(self):
        words = ("bench", "softmax", "--shape", "64,256", "--json")
        preload = {"LD_PRELOAD": HIDDEN, "ASAN_OPTIONS": "verify_asan_link_order=0"}
        plain = json.loads(self.ok(*words))["results"][0]["peak_device_bytes"]
        hidden = json.loads(self.ok(*words, env=preload))["results"][0]["peak_device_bytes"]
        self.assertEqual(hidden - plain, HIDDEN_BYTES)


if __name__ == "__main__":
    if clattn("info", "--json").returncode == 3:
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
