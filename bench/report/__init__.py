"""The results of a run: a table in the terminal, JSON, and one HTML page with plots, drawn from that JSON."""
