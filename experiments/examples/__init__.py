"""Learned methods in one file each, on the environments of `placement.environments`.

Nothing here imports the project's policies or its training loop: a file shows a method from top to
bottom, and is a start for a new one.
"""
