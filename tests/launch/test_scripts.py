"""launch/slurm.sh against stand-ins for SLURM's commands and for the training process."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import ROOT

SCRIPTS = ROOT / "launch"
COMMANDS = {
    "scontrol": '[ "$1" = show ] && echo host-7 || echo "$@" >> requeued',
    "srun": 'while [ "$1" != bash ]; do shift; done; SLURM_NODEID=3 exec "$@"',
    "scancel": 'echo "$@" >> cancelled; kill -TERM "$(cat training)"',
}
# Saves its state when told to, which takes a moment.
TRAINING = """
echo "$NODES $NODE_RANK $MASTER_ADDR $@" > arguments
trap 'sleep 0.3; touch saved; exit 1' TERM
echo $$ > training
for i in $(seq 100); do [ -e finish ] && exit "$(cat finish)"; sleep 0.05; done
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SCRIPTS, "launch")
    # torchrun.sh has tests of its own kind, in test_sharding.
    scripts = {f"bin/{name}": text for name, text in COMMANDS.items()}
    for name, text in (scripts | {"launch/torchrun.sh": TRAINING}).items():
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    for name, value in (("JOB_ID", "12"), ("JOB_NUM_NODES", "4"), ("JOB_NODELIST", "host-[7-9]")):
        monkeypatch.setenv(f"SLURM_{name}", value)


def start() -> subprocess.Popen:
    job = subprocess.Popen(["bash", "launch/slurm.sh", "arm-a", "arm-b"])
    deadline = time.monotonic() + 20
    while not Path("training").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return job


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_that_ends_by_itself_is_not_requeued(cluster, code):
    job = start()
    Path("finish").write_text(str(code))
    assert job.wait(timeout=20) == code
    assert Path("arguments").read_text() == "4 3 host-7 arm-a arm-b\n"
    assert not Path("requeued").exists()


def test_a_job_whose_time_runs_out_saves_and_is_requeued(cluster):
    job = start()
    job.send_signal(signal.SIGUSR1)
    assert job.wait(timeout=20) != 0
    assert Path("cancelled").read_text() == "--signal=TERM 12\n"
    assert Path("saved").exists(), "it did not wait for the state to be saved"
    assert Path("requeued").read_text() == "requeue 12\n"


def test_a_preempted_job_saves_and_is_requeued(cluster):
    job = start()
    job.send_signal(signal.SIGTERM)
    os.kill(int(Path("training").read_text()), signal.SIGTERM)  # SLURM tells the steps itself
    assert job.wait(timeout=20) != 0
    assert Path("saved").exists()
    assert Path("requeued").read_text() == "requeue 12\n"


def test_a_run_that_is_done_when_told_to_stop_is_not_requeued(cluster):
    job = start()
    Path("finish").write_text("0")
    time.sleep(0.1)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=20) in (0, -signal.SIGTERM)
    assert not Path("requeued").exists()


@pytest.mark.parametrize("script", ["torchrun.sh", "slurm.sh"])
def test_without_an_arm_usage_is_said(script):
    done = subprocess.run([SCRIPTS / script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage:" in done.stderr
