"""The tokens a run reads: text (`corpus`), two synthetic tasks, and the packed files of either.

Imports: errors, files, config, config_files, cores.
"""
