"""The γ rule for anyone's model: which parameters there are, which γ each has, which numbers it
gets, and what follows at the first step. `gamma` is the place where γ is applied.

Imports: errors.
"""
