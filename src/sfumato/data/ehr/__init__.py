"""Health records: patients and their visits, read, checked and written."""
