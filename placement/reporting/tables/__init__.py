"""Tables: for the terminal, for Markdown, as CSV."""
