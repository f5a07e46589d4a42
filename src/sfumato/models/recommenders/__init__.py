"""Networks that tell which value a user gives an item, with a part that is each user's own."""
