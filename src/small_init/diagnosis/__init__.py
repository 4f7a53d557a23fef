"""What a model will look like at its first step: predicted, measured, judged before the run.

Imports: errors, rule, config, model.
"""
