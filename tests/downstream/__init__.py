"""Tests of small_init.downstream."""
