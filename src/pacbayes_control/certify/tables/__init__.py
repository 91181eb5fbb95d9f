"""Reading tables from files; a cell that is not clear is an error."""
