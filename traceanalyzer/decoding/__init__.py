"""From the text of Kineto traces to columns, in this process or several: they start without pandas, which takes longer.

`readers.kineto` makes tables and a rank of what is decoded here.
"""
