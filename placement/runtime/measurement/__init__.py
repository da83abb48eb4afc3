"""What a model costs on devices and how long placements take, in a process of its own."""
