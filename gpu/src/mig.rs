//! MIG instances: which fit on a card beside those that are there.
