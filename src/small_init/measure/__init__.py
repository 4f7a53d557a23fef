"""What a run measures of itself while it trains: losses, spectra of weights, activations, tokens.

Imports: errors, files, rule, config, model, data, runs.
"""
