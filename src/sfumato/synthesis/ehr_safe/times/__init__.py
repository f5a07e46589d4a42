"""When visits of generated records are: from the first one to the last, which are drawn beforehand."""
