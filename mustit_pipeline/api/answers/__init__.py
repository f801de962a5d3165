"""What the API answers about things that `mustit … --json` prints too: one document for both.

FastAPI is not imported here: it takes a while, and the command line does without it.
"""
