"""Reading the tables that people bring, where a cell that is misread would void a certificate."""
