"""What commands share: options, types of paths, tables, documents."""
