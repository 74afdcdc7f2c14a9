"""The parts that the HTML pages of the crash laboratory, the benchmark and the audit share.

formatting  numbers, sizes and names as people read them
render      pages from templates: `base.html.j2` and `base.css` are what all of them begin with
markup      elements made in Python, for pages that are no templates yet
document    the frame of such a page
"""
