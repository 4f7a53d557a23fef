"""Our transformer, dense or a mixture of experts, its loss, and its first weights (`init`). It
knows nothing of training, sharding or the paper.

Imports: config, rule.
"""
