"""Generated parts of pages, one module per subject; ``docs.generate`` says which page has which."""
