"""The tasks of the command line, a file each: `run(config, workdir)`."""
