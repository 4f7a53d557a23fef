"""One run, on one device or many, from its configuration and seed to a record and weights.

Imports: errors, files, rule, config, model, data, runs, measure.
"""
