"""What a VM is on paper: schema, formats, options, and the store of configurations."""
