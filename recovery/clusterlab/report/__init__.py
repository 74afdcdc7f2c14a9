"""The report of a run of the cluster laboratory: one page of HTML."""
