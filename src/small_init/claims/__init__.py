"""The paper's claims: their criteria, the contrast each is judged by, the verdict.

Imports: errors, files, config, config_files, runs, measure, stats.
"""
