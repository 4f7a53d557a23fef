"""What is to be run, and what came of it: experiments, arms and their costs, paths, the record of a
run, the table of all runs. Nothing here trains.

Imports: errors, files, config, config_limits, config_files, model, data.
"""
