"""`./dev bench video`: how fast, how exact, how sturdy the export of recordings is, beside what it must be."""
