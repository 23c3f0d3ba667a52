"""Tables and recordings -> clips, features, batches, and a report of problems."""
