#!/usr/bin/env bash
# Train arms under SLURM, from the project's root:
#
#   sbatch --nodes 4 --gpus-per-node 8 --time 12:00:00 launch/slurm.sh ARM…
#
# When the job is preempted or its time runs out, the state is saved and the job goes back into the
# queue; it goes on from the state, on as many nodes as it is given then.
#SBATCH --job-name=small-init
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --requeue
#SBATCH --signal=B:USR1@180
set -euo pipefail
if (($# == 0)); then
  echo "usage: sbatch launch/slurm.sh ARM…   (keys in params.json)" >&2
  exit 2
fi

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR NODES=$SLURM_JOB_NUM_NODES

# USR1: the time is nearly up. TERM: the job is preempted, and SLURM has told the steps as well.
again=false
trap 'again=true; scancel --signal=TERM "$SLURM_JOB_ID"' USR1
trap 'again=true' TERM

# One torchrun a node, which starts one process a GPU; in the background, so that traps run at once.
srun --kill-on-bad-exit=0 bash -c 'NODE_RANK=$SLURM_NODEID exec launch/torchrun.sh "$@"' _ "$@" &
step=$!
code=0
wait "$step" || code=$?
while $again && kill -0 "$step" 2>/dev/null; do # a trap ends `wait`; the step is still saving
  code=0
  wait "$step" || code=$?
done
if $again && ((code != 0)); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
