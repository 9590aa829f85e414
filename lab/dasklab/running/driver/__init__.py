"""Run trials one after the other, unattended, and add blocks."""
