"""Tables and recordings -> clips, features, batches; and what is wrong with them."""
