"""Many runs: side by side on one machine, each over several devices, and what is done with them
when they are finished.

Imports: errors, files, config, cores, model, runs, measure, train.
"""
