"""What a folder of data/<profile>/ holds, beside it and in git, where the folder itself is not.

Whoever depends on the data depends on the manifest: a fresh clone, which has no text, still knows
which text its records were made from, and a rebuilt text shows at once whether it is the same.
"""

from __future__ import annotations

from pathlib import Path

from small_init.files import json_text, sha256, write_bytes, write_text


def keep_manifest(folder: Path) -> Path:
    """Write `<folder>.json`: packed tokens' own meta.json, or the hash of every file."""
    out = folder.with_name(f"{folder.name}.json")
    meta = folder / "meta.json"
    if meta.is_file():
        write_bytes(out, meta.read_bytes())
    else:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        hashes = {path.relative_to(folder).as_posix(): sha256(path) for path in files}
        write_text(out, json_text({"sha256": hashes}))
    return out
