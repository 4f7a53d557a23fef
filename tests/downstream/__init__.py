"""Tests of small_init.evaluate; a package of that name would hide the `evaluate` of lm-eval."""
