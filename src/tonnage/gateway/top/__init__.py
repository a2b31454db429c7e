"""What a running gateway does now: two looks at its status page, what happened between them, as tables."""
