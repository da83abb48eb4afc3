"""A run, step by step: settings, model and devices, costs, searches, measurements, results.

The tasks of the command line are `place`, `advise`, `compare`, `solve`, `profile`, `pretrain`,
`deploy`, `report` and `list`, each `run(settings, workdir, display)` in the module of its name. A
task returns the content of its main JSON file. It raises `UserError` if the settings ask for
something invalid.
"""
