"""The page about synthetic health records."""

from sfumato.report.ehr.page import summary_rows, write_ehr_page

__all__ = ["summary_rows", "write_ehr_page"]
