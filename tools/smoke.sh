#!/usr/bin/env bash
# The pipeline from nothing at the scale of configs/profiles/smoke.yaml, in a copy of the working
# tree, so that the published results, dvc.lock and the caches stay untouched.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
copy=$root/build/smoke
export SMALL_INIT_DOWNLOADS=${SMALL_INIT_DOWNLOADS:-$root/data/downloads}
start=$SECONDS
fail() { echo "smoke: $*"; exit 1; }

rm -rf "$copy"
mkdir -p "$copy"
git ls-files --cached --others --exclude-standard -z |
    while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
    tar --null --files-from=- --create | tar --extract --directory "$copy"
cd "$copy"
rm -rf results data dvc.lock params.json
mkdir -p data
dvc config --local core.no_scm true
small-init plan --profile smoke
small-init reproduce

# Every output that the pipeline names is there and not empty.
python -c 'from small_init.runs.objects import paper_objects
print(*(file for item in paper_objects() for file in item.files()), sep="\n")' > objects.txt
[ "$(wc -l < objects.txt)" -gt 60 ] || fail "only $(wc -l < objects.txt) files are named as objects"
while read -r object; do
    [ -s "results/smoke/$object" ] || fail "results/smoke/$object was not made"
done < <(cat objects.txt; echo report.pdf; echo report.html)
# The arms were trained side by side, all before DVC published the first.
first=$(ls -tr models/*/*.safetensors | sed -n 1p)
[ -z "$(find scratch/runs -name weights.safetensors -newer "$first")" ] || fail "DVC trained arms itself"
# The pipeline's promises: nothing is stale now; a changed arm is trained alone, and only the
# objects that read it are drawn again.
dvc repro --dry > dry.log
! grep '^Running' dry.log || fail "a second dvc repro would run these stages"
sed -i.bak '/"smoke-d16-g100-literal-warmup-5": {/,/"warmup_steps"/ s/"warmup_steps": 5/"warmup_steps": 6/' params.json
small-init reproduce > again.log
ran=$(sed -n "s/^Running stage '\(.*\)':$/\1/p" again.log | sort | tr '\n' ' ')
[ "$ran" = "calibrate@smoke-d16-g100-literal-warmup-5 claims figure-6 figure-s2 report runs table-4 " ] ||
    fail "one changed arm made run: $ran"
echo "smoke: all objects drawn from real training in $((SECONDS - start)) s; see ${copy#"$root"/}/results/smoke"
