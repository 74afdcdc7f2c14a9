"""Bytes to words and back, as pure functions: nothing here opens a file, waits, or knows the time."""
