"""Replication of "Small Initialization Matters for Large Language Models" (arXiv 2606.17945)."""
