"""Intervals, fits, factorial effects, and means over documents and items; of plain numbers.

Imports: nothing of the project.
"""
