"""Everything a run is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from small_init.config import ArmConfig, ParallelConfig
from small_init.files import fingerprint, sha256
from small_init.runs.code_identity import run_digest
from small_init.runs.paths import event_folder, packed_folder


@dataclass(frozen=True)
class RunSpec:
    """Everything a run is told."""

    profile: str
    stage: str
    arm_key: str
    arm: ArmConfig
    seed: int
    parallel: ParallelConfig = field(default_factory=ParallelConfig)

    @property
    def data_folder(self) -> Path:
        return packed_folder(self.profile, self.arm.train.corpus)

    @property
    def event_folder(self) -> Path:
        return event_folder(self.profile, self.arm_key, self.seed)

    def scratch(self, data_sha256: str) -> Path:
        """Where this very run (configuration, data, code) keeps its state."""
        identity = self.arm.identity()
        state = [identity, self.seed, data_sha256, run_digest()]
        return Path("scratch/runs") / self.arm_key / f"seed-{self.seed}-{fingerprint(state)}"

    def finished(self) -> Path | None:
        """The scratch folder of this very run, if its record is there and whole."""
        meta = self.data_folder / "meta.json"
        folder = self.scratch(sha256(meta)) if meta.is_file() else None
        return folder if folder and (folder / "record").is_dir() else None
