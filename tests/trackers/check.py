#!/usr/bin/env python3
"""wandb (offline), mlflow (files, and a database) and trackio (local) have the numbers of metrics.jsonl, each once.

    cargo xtask peers trackers

or, with the packages of xtask/peers/trackers.txt: tests/trackers/check.py PRECAST

A run trains on the simulated GPU. Four loggers follow it, each killed three times. The run is killed, too, behind a checkpoint, and
resumed once its last lines are logged: they are cut and computed again. Their times are those of either line.
"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
LOG = TESTS.parent / "trainer/log/precast-log"
STEPS, EVERY, KILLED_BEHIND, KILLS = 400, 100, 250, 3
CLOCK = {"step_ms", "tokens_per_s", "row_tokens_per_s"}

precast = pathlib.Path(sys.argv[1]).resolve()
dir = pathlib.Path(tempfile.mkdtemp(prefix="trackers-"))
run = dir / "run"
os.environ |= {"WANDB_MODE": "offline", "TRACKIO_DIR": str(dir / "trackio"), "MLFLOW_ALLOW_FILE_STORE": "true"}
STORES = {"mlflow": f"file:{dir}/mlruns", "mlflow of a database": f"sqlite:///{dir}/mlflow.db"}


class Logger:
    """A process of `precast log`, which is killed a few seconds after each of its first starts."""

    def __init__(self, name):
        self.name, self.kills = name, KILLS
        self.start()

    def start(self):
        path = f"{pathlib.Path(sys.executable).parent}:{LOG.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": STORES.get(self.name, "")}
        self.said = open(dir / f"{self.name}.txt", "a")
        self.process = subprocess.Popen([precast, "log", "--to", self.name.split()[0], run], cwd=dir, env=environment,
                                        stdout=self.said, stderr=self.said)
        self.until = time.monotonic() + random.uniform(3, 9)

    def look(self):
        """Kills it where it is time; returns true once it has ended by itself."""
        code = self.process.poll()
        if code is None and self.kills and time.monotonic() > self.until:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.kills -= 1
            self.start()
        assert code in (None, 0), f"{self.name}: {code}\n{(dir / f'{self.name}.txt').read_text()}"
        return code == 0


def train(*more):
    inputs = ["--model", dir / "tiny", "--data", dir / "tokens.bin", "--eval-data", dir / "tokens.bin", "--eval-every", "40"]
    shape = f"--steps {STEPS} --batch-size 4 --seq-len 64 --device sim --checkpoint-every {EVERY} --precision int8 --guard-every 40".split()
    return subprocess.Popen([precast, "train", *inputs, *shape, "--out", run, *more], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def lines():
    text = (run / "metrics.jsonl").read_text()
    return [flat(json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def flat(line):
    """A line with the layers of its guard as numbers of their own."""
    layers = enumerate(line.pop("guard", []))
    return {**line, **{f"guard/{index}/{key}": value for index, layer in layers for key, value in layer.items()}}


def wait_for(is_so, loggers):
    while not is_so():
        for logger in loggers:
            logger.look()
        time.sleep(0.05)


def wandb_values():
    loader = importlib.machinery.SourceFileLoader("precast_log", str(LOG))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("precast_log", loader))
    loader.exec_module(module)
    for path in sorted(dir.glob("wandb/offline-run-*/run-*.wandb")):
        for step, items in module.Wandb.history(path):
            yield from ((key, step, json.loads(value)) for key, value in items.items() if not key.startswith("_"))


def mlflow_values(store):
    import mlflow
    client = mlflow.MlflowClient(store)
    found, = client.search_runs([client.get_experiment_by_name("precast").experiment_id])
    assert found.info.status == "FINISHED" and found.data.params["steps"] == str(STEPS), found
    for key in found.data.metrics:
        yield from ((key, one.step, one.value) for one in client.get_metric_history(found.info.run_id, key))


def trackio_values():
    rows = sqlite3.connect(dir / "trackio/precast.db").execute("select run_name, step, metrics from metrics").fetchall()
    assert len({name for name, *_ in rows}) == 1, rows[0]
    for _, step, metrics in rows:
        yield from ((key, step, value) for key, value in json.loads(metrics).items())


def compare(name, values, final, cut):
    found = {}
    for key, step, value in values:
        assert (key, step) not in found, f"{name} has {key} of step {step} twice"
        found[key, step] = value
    expected = {(key, line["step"]): value for line in final for key, value in line.items() if key != "step"}
    assert found.keys() == expected.keys(), (name, sorted(found.keys() ^ expected.keys())[:9], len(found), len(expected))
    of_cut = 0
    for (key, step), value in expected.items():
        if found[key, step] != value:
            assert key in CLOCK and step in cut and found[key, step] == cut[step][key], (name, key, step, value, found[key, step])
            of_cut += 1
    print(f"{name}: {len(found)} values of {len(final)} steps, {of_cut} of them times of lines that were cut")


random.seed(0)
(dir / "tokens.bin").write_bytes(b"".join(struct.pack("<I", at * at % 96) for at in range(70 * 65)))
subprocess.run([precast, "init", "--config", TESTS / "models/tiny.json", "--out", dir / "tiny"], check=True,
               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
trainer = train()
while not ((run / "run.json").exists() and (run / "metrics.jsonl").exists()):
    assert trainer.poll() is None, "the run ended before its first step"
    time.sleep(0.01)
loggers = [Logger(name) for name in ["wandb", "trackio", *STORES]]
wait_for(lambda: len(lines()) > KILLED_BEHIND, loggers)
trainer.kill()
trainer.wait()
before = lines()
assert KILLED_BEHIND < len(before) < STEPS and len(before) % EVERY, f"killed after {len(before)} steps"
# Nothing is killed until they have logged the last lines.
time.sleep(12)
trainer = train("--resume")
wait_for(lambda: all([logger.look() for logger in loggers]), loggers)
assert trainer.wait() == 0
final = lines()
assert len(final) == STEPS
cut = {line["step"]: line for line in before if line["step"] > len(before) // EVERY * EVERY}
compare("wandb", wandb_values(), final, cut)
compare("trackio", trackio_values(), final, cut)
for name, store in STORES.items():
    compare(name, mlflow_values(store), final, cut)
killed = sum(KILLS - logger.kills for logger in loggers)
assert killed >= len(loggers), f"{killed} loggers were killed: the run was too short"
print(f"{killed} loggers were killed, and a run after step {len(before)}, resumed from {len(before) // EVERY * EVERY}")
