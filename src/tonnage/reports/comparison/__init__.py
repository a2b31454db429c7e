"""A comparison as a report: HTML, Markdown, terminal text, JSON, CSV; the migration as CSV and iCalendar."""
