"""Runs side by side through the real processes, and every fault as one sentence."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from small_init.cli import main
from small_init.config import Accelerator, ArmConfig, ParallelConfig, differences
from small_init.config_files import merged
from small_init.cores import gpus_of, jobs_of, slot
from small_init.errors import UserError
from small_init.launch import reproduce
from small_init.launch.pool import train_runs
from small_init.launch.publish import publish
from small_init.runs.objects import object_names
from small_init.runs.paths import PARAMS, record_folder
from small_init.runs.record import load_run
from small_init.runs.spec import RunSpec
from small_init.train import pretrain

pytestmark = pytest.mark.filterwarnings("ignore")
LONG = {"train": {"tokens": 64 * 1500}}  # long enough to be interrupted


def write_params(**arms: ArmConfig) -> None:
    entries = {
        name.replace("_", "-"): differences(arm, ArmConfig()) | {"seeds": arm.seeds}
        for name, arm in arms.items()
    }
    params = {
        "profile": "test",
        "arms": {"pretrain": entries},
        "objects": {name: [] for name in object_names()},
    }
    PARAMS.write_text(json.dumps(params))


def run_cli(*words: str, **kwargs) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "small_init", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs,
    )  # fmt: skip


def wait_for(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_seeds_of_an_arm_run_side_by_side_and_are_published(project, tiny_arm):
    tiny_arm.seeds = [0, 1, 2]
    write_params(test_a=tiny_arm)
    reproduce.train_arms(["test-a"], jobs=2)
    losses = {load_run("test", "test-a", seed).val_loss for seed in (0, 1, 2)}
    assert len(losses) == 3
    assert sorted(p.name for p in Path("models/test-a").iterdir()) == [
        f"seed-{seed}.safetensors" for seed in (0, 1, 2)
    ]
    # A second call finds the runs finished: it only publishes them again.
    shutil.rmtree("results")
    started = time.monotonic()
    reproduce.train_arms(["test-a"], jobs=2)
    assert load_run("test", "test-a", 2).val_loss in losses
    assert time.monotonic() - started < 15


def test_never_more_runs_than_slots(project):
    inside, most, lock = [0], [0], threading.Lock()

    def work():
        with slot(2):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            time.sleep(0.1)
            with lock:
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 2


@pytest.fixture
def two_gpus(monkeypatch):
    """Two of a machine's four GPUs are ours, as far as torch tells."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("SMALL_INIT_JOBS", raising=False)


def test_each_run_has_the_gpu_of_its_slot(project, tiny_arm, two_gpus, monkeypatch):
    """Four runs on two GPUs: no GPU has two at a time, and both are used."""

    def pretend(spec, progress):
        gpu, folder = os.environ["CUDA_VISIBLE_DEVICES"], Path("used", str(spec.seed))
        folder.mkdir(parents=True)
        with FileLock(f"gpu-{gpu}.lock", blocking=False):
            Path(f"gpu-{gpu}.seen").touch()
            wait_for(lambda: len(list(Path().glob("*.seen"))) == 2)
        (folder / gpu).touch()
        return folder

    monkeypatch.setattr(pretrain, "train", pretend)
    # Children of a fork server would not know of the pretence.
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: fork)
    parallel = ParallelConfig(accelerator=Accelerator.cuda)
    specs = [RunSpec("test", "pretrain", "a", tiny_arm, seed, parallel) for seed in range(4)]
    folders = train_runs(specs, jobs=None, title="four")
    assert set(folders) == {("a", seed) for seed in range(4)}
    used = [path.name for folder in folders.values() for path in folder.iterdir()]
    assert len(used) == 4
    assert set(used) == {"1", "3"}


def test_by_default_there_are_as_many_runs_as_gpus(two_gpus, monkeypatch):
    assert gpus_of(ParallelConfig()) == []
    assert gpus_of(ParallelConfig(accelerator=Accelerator.cuda)) == ["1", "3"]
    assert jobs_of(None, gpus=2) == 2
    assert jobs_of(3, gpus=2) == 3
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpus_of(ParallelConfig(accelerator=Accelerator.cuda)) == ["0", "1"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="torch finds none"):
        gpus_of(ParallelConfig(accelerator=Accelerator.cuda))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_saves_says_so_and_goes_on(project, tiny_arm, number):
    arm = merged(tiny_arm, LONG, where="")
    arm.seeds = [0, 1]
    write_params(test_a=arm)
    # A process group of its own, which is what Ctrl-C reaches.
    process = run_cli("pretrain", "--arm", "test-a", "--jobs", "2", start_new_session=True)
    runs = Path("scratch/runs/test-a")
    events = Path("scratch/tensorboard/test/test-a")
    wait_for(lambda: len(list(events.glob("seed-*/events*"))) == 2)
    # Lightning opens the event file first and begins to catch SIGTERM, which saves a run, later.
    wait_for(lambda: not Path("/proc").is_dir() or _catching(signal.SIGTERM, process.pid) >= 2)
    time.sleep(1.0)
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=240)
    assert process.returncode != 0
    assert f"Stopped by {number.name}; every run's state is saved" in errors
    assert "Traceback" not in errors
    assert len(list(runs.glob("seed-*/last.ckpt"))) == 2
    assert not Path("results").exists()
    again = run_cli("pretrain", "--arm", "test-a", "--jobs", "2")
    assert again.wait(timeout=240) == 0
    went_on = {seed: load_run("test", "test-a", seed).hashes() for seed in (0, 1)}
    shutil.rmtree("scratch")
    shutil.rmtree("results")
    reproduce.train_arms(["test-a"], jobs=2)
    assert went_on == {s: load_run("test", "test-a", s).hashes() for s in (0, 1)}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the child in /proc")
def test_a_killed_run_is_reported_and_the_others_are_kept(project, tiny_arm):
    arm = merged(tiny_arm, LONG, where="")
    write_params(test_a=arm)
    specs = [
        RunSpec("test", "pretrain", "test-a", arm, 0),
        RunSpec("test", "pretrain", "test-b", tiny_arm, 0),
    ]
    killed = []

    def kill_first():
        wait_for(lambda: list(Path("scratch/tensorboard/test/test-a").glob("seed-0/events*")))
        wait_for(lambda: list(Path("scratch/runs/test-b").glob("seed-0-*/record")))
        for process in Path("/proc").glob("[0-9]*"):
            children = process / "task" / process.name / "children"
            if children.exists() and str(os.getpid()) == _parent(process):
                for child in children.read_text().split():
                    killed.append(int(child))
                    os.kill(int(child), signal.SIGKILL)

    thread = threading.Thread(target=kill_first)
    thread.start()
    with pytest.raises(UserError, match=r"test-a, seed 0 was killed with exit code"):
        train_runs(specs, jobs=2, title="two arms")
    thread.join()
    assert killed
    assert list(Path("scratch/runs/test-b").glob("seed-0-*/record"))


def _catching(number: signal.Signals, group: int) -> int:
    """How many processes of a group, its leader apart, have a handler for the signal."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, KeyError):
            of = dict(line.split(":\t") for line in (process / "status").read_text().splitlines())
            caught = int(of["SigCgt"], 16) >> (number - 1) & 1
            in_group = os.getpgid(int(process.name)) == group != int(process.name)
            count += bool(caught and in_group)
    return count


def _parent(process: Path) -> str:
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()[1]
    except OSError:
        return ""


def test_a_failing_run_gives_its_sentence(project, tiny_arm, capsys):
    bad = merged(tiny_arm, {"optimizer": {"lr": 1e6, "clip": None, "warmup_steps": 0}}, where="")
    write_params(test_a=bad)
    with pytest.raises(SystemExit) as stop:
        main(["pretrain", "--arm", "test-a"])
    assert "is not finite at step" in str(stop.value)
    assert "Traceback" not in str(stop.value)
    assert not Path("results").exists()


def test_a_second_reproduce_is_refused(project, tiny_arm):
    write_params(test_a=tiny_arm)
    Path("scratch").mkdir(exist_ok=True)
    with FileLock("scratch/reproduce.lock"), pytest.raises(SystemExit, match="Another `make rep"):
        main(["reproduce"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pretrain", "--arm", "nothing"], r"Arm 'nothing' is not in params\.json"),
        (["plan", "--profile", "huge"], r"configs/profiles/huge\.yaml does not exist"),
        (["corpus", "--profile", "huge"], r"huge"),
        (["prune"], None),
    ],
)
def test_wrong_commands_are_one_sentence(project, tiny_arm, words, sentence):
    write_params(test_a=tiny_arm)
    if sentence is None:
        main(words)
        return
    with pytest.raises(SystemExit, match=sentence) as stop:
        main(words)
    assert "\n" not in str(stop.value)


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_wrong_jobs_are_refused(monkeypatch, jobs):
    monkeypatch.setenv("SMALL_INIT_JOBS", jobs)
    with pytest.raises(UserError, match="give 1 or more"):
        jobs_of(None)
    if jobs != "two":
        with pytest.raises(UserError, match="give 1 or more"):
            jobs_of(int(jobs))


def test_two_commands_that_publish_one_run_leave_it_whole(project, tiny_arm):
    write_params(test_a=tiny_arm)
    spec = RunSpec("test", "pretrain", "test-a", tiny_arm, 0)
    (folder,) = train_runs([spec], jobs=1, title="one").values()
    threads = [threading.Thread(target=publish, args=(spec, folder)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert load_run("test", "test-a", 0).hashes()
    assert [p.name for p in Path("results/test/runs/test-a").iterdir()] == ["seed-0"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB; skips where the test may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("may not mount a small file system here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_keeps_what_was_published(project, tiny_arm, small_disk, capsys):
    write_params(test_a=tiny_arm)
    reproduce.train_arms(["test-a"], jobs=1)
    before = (record_folder("test", "test-a", 0) / "metrics.json").read_bytes()
    shutil.copytree("data", small_disk / "data")
    shutil.copytree("results", small_disk / "results")
    os.chdir(small_disk)
    write_params(test_a=merged(tiny_arm, {"optimizer": {"lr": 5e-3}}, where=""))
    room = shutil.disk_usage(".").free
    Path("filler").write_bytes(b"x" * (room - 40_000))
    with pytest.raises(UserError) as error:
        reproduce.train_arms(["test-a"], jobs=1)
    assert "Traceback" not in str(error.value), str(error.value)
    assert (record_folder("test", "test-a", 0) / "metrics.json").read_bytes() == before
    Path("filler").unlink()
    reproduce.train_arms(["test-a"], jobs=1)
    after = json.loads((record_folder("test", "test-a", 0) / "metrics.json").read_text())
    assert after["config"]["optimizer"]["lr"] == 5e-3
