"""Pages for people who look: what the reports of the crash laboratory, the bench and the audit share.

wording     numbers, sizes and names in words
markup      elements that cannot be broken by what they show
document    a page that needs nothing else
"""
