"""Compares two .npy files of <f2 or <f4 in C order: prints the largest difference, fails where it is over the limit.

Needs only the standard library, so that the demo needs no NumPy. Usage: compare_npy.py RESULT EXPECTED LIMIT
"""

import ast
import math
import struct
import sys


def read(path):
    """Shape and values of one file."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] != b"\x93NUMPY\x01\x00":
        sys.exit(f"{path}: not a .npy file of version 1.0")
    (length,) = struct.unpack_from("<H", data, 8)
    header = ast.literal_eval(data[10 : 10 + length].decode("latin1"))
    code = {"<f2": "e", "<f4": "f"}.get(header["descr"])
    if code is None or header["fortran_order"]:
        sys.exit(f"{path}: neither <f2 nor <f4 in C order")
    count = math.prod(header["shape"])
    return header["shape"], struct.unpack_from(f"<{count}{code}", data, 10 + length)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    result_path, expected_path, limit = sys.argv[1], sys.argv[2], float(sys.argv[3])
    shape, result = read(result_path)
    expected_shape, expected = read(expected_path)
    if shape != expected_shape:
        sys.exit(f"shape {shape} is not {expected_shape}")
    differences = [abs(a - b) for a, b in zip(result, expected)]
    worst = max(differences)
    ok = all(difference <= limit for difference in differences)  # a NaN is in no order with the limit
    print(f"model output: max difference {worst:.3g} of {len(result)} values, limit {limit:g}: {'ok' if ok else 'FAIL'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
