"""The recrawl policy: which sources of which products are worth a request, and the age that a budget keeps.

A source is the detail or the options of one product. Times are hours, rates are events per hour.
"""
