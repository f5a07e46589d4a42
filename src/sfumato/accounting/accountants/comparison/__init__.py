"""Accountants of other papers, to compare with; nothing is stated by them."""
