"""Downstream tasks: the trained models behind lm-eval, and tasks that small models can do.

Imports: errors, files, config, config_files, model, data, runs, measure, train.
"""

import os

# lm-eval and `datasets` read these when they are imported. What is evaluated lies on this machine,
# unless somebody says otherwise (HF_HUB_OFFLINE=0); and every task would bring progress bars.
for _name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TQDM_DISABLE"):
    os.environ.setdefault(_name, "1")
