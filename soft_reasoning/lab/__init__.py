"""What runs data sets: their rows, runs in folders, records, tables and pages. The core never imports it."""
