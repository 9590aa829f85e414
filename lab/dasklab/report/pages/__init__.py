"""The pages of the report, and their sections."""
