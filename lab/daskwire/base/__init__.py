"""What all of daskwire uses: array types, exceptions, the columns of tables, printable text."""
