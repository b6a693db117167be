"""One reader for each type of answer, and the words, numerals and sentences that they read."""
