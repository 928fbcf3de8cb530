#!/usr/bin/env python3
"""clattn tune, end to end, on the default device: what it stores is in force, kills lose nothing, and a candidate that
crashes, hangs, leaves, is wrong or has no time costs itself alone.

usage: tune_test.py CLATTN CLATTN_WITH_FAULTS [long]
Exit status 77 (skipped) where there is no OpenCL device."""
import glob
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CLATTN, FAULTY = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
LONG = sys.argv[3:] == ["long"]
# Its kernel is the quickest to compile, and its class of sizes is one that others of its operation are not in.
SHAPE = ("cast", "--shape", "65536", "--dtype", "f32")


def workers(seed):
    found = []
    for name in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(name, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"tune-worker" in words and str(seed).encode() in words:
            found.append(words)
    return found


class Tune(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.db = os.path.join(self.folder.name, "data", "tuning.json")
        self.seed = random.randrange(10 ** 6, 10 ** 7)
        print("seed", self.seed, file=sys.stderr)

    def words(self, *words):
        return ["tune", *words, "--db", self.db, "--seed", str(self.seed)]

    def tune(self, *words, command=CLATTN, env=None):
        done = subprocess.run([command, *self.words(*words), "--json"], capture_output=True, text=True, timeout=600,
                              env={**os.environ, **(env or {})})
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.rows()
        self.assertEqual(workers(self.seed), [])
        return json.loads(done.stdout)

    def rows(self):
        """Of a whole database, at any moment."""
        with open(self.db, encoding="utf-8") as file:
            return json.load(file)["rows"]

    def lines(self, but=b"never"):
        """Of the journal: whole ones, behind its title."""
        try:
            with open(self.db + ".journal", "rb") as file:
                return sum(b"\t" in line and line.endswith(b"\n") and not line.endswith(but) for line in file)
        except FileNotFoundError:
            return 0

    def test_what_is_stored_is_in_force(self):
        said = self.tune(*SHAPE, *(("--budget", "60") if LONG else ("--candidates", "6")))
        self.assertGreater(said["tried"], 0)
        self.assertEqual((said["failed"], said["wrong"]), (0, 0), said)
        self.assertEqual(said["stored"] + said["usual"] + said["noisy"], len(said["results"]))
        self.assertEqual(said["stored"], len(self.rows()))
        for row, result in zip(self.rows(), said["results"]):
            self.assertEqual(result["outcome"], "stored")
            self.assertLess(result["ratio"], 0.98)
            self.assertEqual((row["min_size"], row["max_size"]), (32769, 65536))
            self.assertLess(row["seconds"], row["usual_seconds"])
            done = subprocess.run([CLATTN, "bench", "cast", "--shape", "65536", "--json"],
                                  capture_output=True, text=True, env={**os.environ, "CLATTN_TUNING_DB": self.db})
            ran = dict(p.split("=") for p in json.loads(done.stdout)["results"][0]["parameters"].split(","))
            self.assertEqual({k: str(v) for k, v in row["parameters"].items()},
                             {k: v for k, v in ran.items() if k in row["parameters"]})

    def test_kills_lose_nothing(self):
        words = ["softmax", "--dtype", "f32"] if LONG else SHAPE
        for kills in range(10 if LONG else 2):
            begun = self.lines()
            process = subprocess.Popen([CLATTN, *self.words(*words, "--resume", "--candidates", "20")],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while self.lines() < begun + 3 and process.poll() is None:
                time.sleep(0.01)
            time.sleep(random.uniform(0, 6 if LONG else 0.3))
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.rows()
        deadline = time.monotonic() + 10
        while workers(self.seed) and time.monotonic() < deadline:
            time.sleep(0.1)
        known = self.lines(b"\tbegun\n")
        self.assertGreater(known, 0)
        said = self.tune(*words, "--resume", *(("--budget", "60") if LONG else ("--candidates", "6")))
        self.assertEqual(said["resumed"], known)
        self.assertEqual((said["failed"], said["wrong"]), (0, 0), said)

    def faulty(self, faults, *words, shape=SHAPE):
        return self.tune(*shape, *words, command=FAULTY, env={
            "CLATTN_TEST_FAULTS": faults, "CLATTN_TEST_FAULTS_FILE": os.path.join(self.folder.name, "count")})

    def test_a_bad_candidate_costs_itself(self):
        faults = "none,crash,wrong,leave,zero" + (",hang" if LONG else "")
        said = self.faulty(faults, "--candidates", "8", "--limit", "20" if LONG else "60")
        self.assertEqual((said["failed"], said["wrong"]), (faults.count(",") - 1, 1), said)
        self.assertGreater(said["tried"], 1)
        self.assertEqual(said["stored"] + said["usual"] + said["noisy"], 1)

    def test_a_choice_of_the_library_that_fails_is_told(self):
        said = self.faulty("wrong")
        self.assertEqual((said["tried"], said["wrong"], said["stored"]), (0, 1, 0), said)
        self.assertIn("cannot be timed", said["results"][0]["outcome"])
        self.assertEqual(self.rows(), [])

    def test_noise_is_not_stored_and_can_be_resumed(self):
        said = self.faulty("noise", "--candidates", "4")
        # on a busy machine all of them may be slower beyond any noise, and nothing is left to go on with
        self.assertEqual((said["tried"], said["noisy"] + said["usual"], said["stored"]), (4, 1, 0), said)
        self.assertEqual(self.rows(), [])
        known = 5 if said["noisy"] else 0
        said = self.tune(*SHAPE, "--candidates", "4", "--resume")
        self.assertEqual((said["tried"], said["resumed"], len(said["results"])), (4 if known == 0 else 0, known, 1), said)

    def test_what_the_oracle_does_not_see_is_compared(self):
        said = self.faulty("blind", "--candidates", "2")
        self.assertEqual((said["tried"], said["wrong"], said["stored"]), (2, 1, 0), said)
        self.assertEqual(self.rows(), [])

    def test_what_is_wrong_now_and_then_is_seen(self):
        said = self.faulty("flaky", "--candidates", "2")
        self.assertEqual((said["tried"], said["wrong"], said["stored"]), (2, 1, 0), said)

    def test_what_is_slower_for_few_rows_is_not_stored(self):
        said = self.faulty("large", "--candidates", "2")
        self.assertEqual((said["stored"], len(self.rows())), (1, 1), said)
        said = self.faulty("large", "--candidates", "2",
                           shape=("softmax", "--shape", "64,64", "--dtype", "f32", "--variant", "subgroup"))
        self.assertEqual((said["stored"], said["usual"], len(self.rows())), (0, 1, 1), said)
        self.assertIn("slower for a small problem", said["results"][0]["outcome"])

    def test_crossovers_are_measured_and_obeyed(self):
        said = self.tune("attention", "--crossovers", "--dtype", "f32", "--candidates", "12" if LONG else "1")
        self.assertEqual((said["failed"], said["wrong"]), (0, 0), said)
        self.assertEqual(len(said["results"]), 12 if LONG else 1)
        self.assertEqual(said["stored"], len(self.rows()))
        for result in said["results"]:
            if result["outcome"] == "stored":
                self.assertLess(result["ratio"], 0.98)
                done = subprocess.run([CLATTN, "bench", "attention", "--shape", result["shape"], "--json"],
                                      capture_output=True, text=True, env={**os.environ, "CLATTN_TUNING_DB": self.db})
                self.assertEqual(json.loads(done.stdout)["results"][0]["variant"], result["variant"])

    def test_misuse(self):
        with open(os.path.join(self.folder.name, "broken"), "w", encoding="utf-8") as file:
            file.write("no database")
        wrong = {
            ("--budget", "soon"): "soon",
            ("--budget", "-1"): "-1",
            ("--shape", "1,2"): "one operation",
            ("softmax", "--shape", "x"): "x",
            ("softmax", "axis=1"): "axis",
            ("softmax", "--crossovers"): "of attention",
            ("softmax", "--candidates", "0"): "--candidates 0",
            ("softmax", "--limit", "x"): "--limit x",
            ("softmax", "--db", file.name): "left alone",
            ("softmax", "--db", self.folder.name): "left alone",
            ("softmax", "--db", ""): "--db",
        }
        for words, reason in wrong.items():
            with self.subTest(words=words):
                done = subprocess.run([CLATTN, *self.words()[:1], *words], capture_output=True, text=True,
                                      env={**os.environ, "CLATTN_TUNING_DB": self.db})
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertIn(reason, done.stderr)
        done = subprocess.run([CLATTN, "tune", "softmax"], capture_output=True, text=True,
                              env={**os.environ, "CLATTN_TUNING_DB": ""})
        self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    if subprocess.run([CLATTN, "info", "--json"], capture_output=True).returncode == 3:
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
