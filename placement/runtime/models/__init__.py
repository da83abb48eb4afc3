"""Models as the project sees them: read, converted, made graphs, told apart."""
