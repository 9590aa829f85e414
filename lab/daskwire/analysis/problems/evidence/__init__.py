"""What the kinds of problems read: values that several of them derive from a capture, computed once."""
