"""What the report says in words: levels, answers, notes, facts."""
