"""The same work on several engines: data, workers in processes of their own, journal, session, environments."""
