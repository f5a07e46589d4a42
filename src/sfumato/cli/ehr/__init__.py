"""Commands on health records."""
