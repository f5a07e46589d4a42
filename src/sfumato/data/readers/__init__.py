"""What reads each format: one file a reader, and one line here, in the order in which they are asked.

The first reader that recognises a source reads it. A reader gives `Records`, of which `data.gather` makes a data set:
it decodes, skips, groups by user, writes stores, keeps copies, and goes on after a stop. One whose format holds arrays
gives the data set itself.
"""

from sfumato.data.readers import arrays, emnist, folders, omniglot, ratings, schema_tables, tables, texts
from sfumato.data.records import Reader

USERS: tuple[Reader, ...] = (
    ratings.USERS,
    texts.USERS,
    tables.USERS,
    arrays.GLYPHS,
    arrays.STORES,
    emnist.TFF,
    emnist.LEAF,
    omniglot.FOLDERS,
    folders.USERS,
    omniglot.ARRAYS,
    arrays.USERS,
)
"""Of data that are divided by user."""

EXAMPLES: tuple[Reader, ...] = (
    arrays.GLYPH_EXAMPLES,
    arrays.UNLABELLED,
    folders.UNLABELLED,
    tables.EXAMPLES,
    ratings.EXAMPLES,
    arrays.EXAMPLE_STORES,
    arrays.IDX,
    arrays.LOOSE,
    folders.CLASSES,
    arrays.EXAMPLES,
    schema_tables.EXAMPLES,
    texts.EXAMPLES,
)
"""Of single examples."""
