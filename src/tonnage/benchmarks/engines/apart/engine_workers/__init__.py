"""One engine measured in a process of its own. Imports nothing of tonnage: environments of engines need numpy alone."""
