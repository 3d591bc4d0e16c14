"""Problems: reading and checking a user's file, splitting it, writing warm-start texts for it; the embedded set."""
