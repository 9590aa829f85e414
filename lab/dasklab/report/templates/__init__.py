"""The templates of all pages, and what renders them."""
