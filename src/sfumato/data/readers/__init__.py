"""What reads each format: one file a reader, and one line in `known`.

The first reader that recognises a source reads it. A reader gives `Records`, of which `data.gather` makes a data set:
it decodes, skips, groups by user, writes stores, keeps copies, and goes on after a stop. One whose format holds arrays
gives the data set itself.
"""

from sfumato.data.readers.known import EXAMPLES, USERS

__all__ = ["EXAMPLES", "USERS"]
