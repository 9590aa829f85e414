"""What a reader gets: sentences, pictures, the notebook view, a trace."""
