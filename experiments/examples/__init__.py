"""A learned method in one file, on an environment of `placement.environments`.

Nothing here imports the project's policies or its training loop: the file shows a method from top
to bottom, and is a start for a new one.
"""
