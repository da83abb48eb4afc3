"""The tasks of the command line, a file each: `run(settings, workdir, display)`.

A task returns the content of its main JSON file. It raises `UserError` if the settings ask for
something invalid.
"""
