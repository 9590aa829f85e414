"""Operations on a whole container: they combine its configuration, its files and its processes."""
