"""The form of files: strict models, YAML, versions of formats, JSON, numbers."""
