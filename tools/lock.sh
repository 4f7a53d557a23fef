#!/usr/bin/env bash
# Resolve pyproject.toml into requirements.lock: exact versions with hashes, for every platform.
# torch is left out on purpose: one lock cannot hold both the CPU and the CUDA build (see README, Set-up);
# the packages torch itself needs are named here, so that they are pinned all the same.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo 'torch ; sys_platform == "never"' > "$scratch/overrides.txt"
printf '%s\n' filelock fsspec jinja2 networkx setuptools sympy typing-extensions > "$scratch/torch-needs.txt"
${UV:-uv} pip compile pyproject.toml "$scratch/torch-needs.txt" \
    --extra dev --extra hf --universal --python-version 3.11 --generate-hashes \
    --overrides "$scratch/overrides.txt" --no-emit-package torch \
    --no-header --no-annotate --quiet --output-file "$scratch/lock"
{
    echo "# Written by tools/lock.sh (make lock). Install: pip install --no-deps --require-hashes -r requirements.lock"
    cat "$scratch/lock"
} > requirements.lock
