"""The audit's tasks on Spark: on this machine, or on the executors of a cluster.

java        the Java that Spark needs, or one line that says what to install
archive     the classes of Spark's own Java process, loaded and verified once for all runs
launch      that Java process: how it is started, and quietly
session     the session, with everything set; one that is active is used as it is
shipping    this package on the executors of a cluster
engine      tasks → one Spark job → parts, as they end
"""
