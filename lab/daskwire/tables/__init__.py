"""What a capture is made into: tables, summary, exports."""
