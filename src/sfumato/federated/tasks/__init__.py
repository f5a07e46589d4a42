"""What the data of users must be, and how a model of them is measured."""
