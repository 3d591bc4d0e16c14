"""Problems: reading and checking a user's file, splitting it."""
