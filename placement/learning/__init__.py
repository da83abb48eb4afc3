"""Policy-gradient learners over any `Policy` and any `Evaluate`."""
