#!/usr/bin/env bash
# Train arms on all GPUs of one machine, or of several with a folder in common:
#
#   launch/torchrun.sh ARM…
#   NODES=2 NODE_RANK=0 MASTER_ADDR=host-0 launch/torchrun.sh ARM…     on the first machine
#   NODES=2 NODE_RANK=1 MASTER_ADDR=host-0 launch/torchrun.sh ARM…     on the second
#
# DEVICES= processes per machine (default: one a GPU), MASTER_PORT= (29500). Ctrl-C and SIGTERM save
# the state first; the same command goes on from it, on any number of devices.
set -euo pipefail
cd "$(dirname "$0")/.."
if (($# == 0)); then
  echo "usage: launch/torchrun.sh ARM…   (keys in params.json)" >&2
  exit 2
fi

exec .venv/bin/python -m torch.distributed.run \
  --nnodes "${NODES:-1}" --node-rank "${NODE_RANK:-0}" --nproc-per-node "${DEVICES:-gpu}" \
  --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \
  --shutdown-timeout 120 \
  -m small_init pretrain --arm "$@"
