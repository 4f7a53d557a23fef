"""Runs of a few steps whose records are pinned, and changes of the code that they must notice.

runs.py             the runs, and how one is made and hashed
goldens.json        their hashes, by kind of machine
test_goldens.py     the code still gives them
__main__.py         renews them: python -m tests.goldens --write
test_mutations.py   changes of the code, and the run that must notice each
mutants.py          makes these runs, one forked process a change
"""
