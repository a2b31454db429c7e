"""A comparison as a report: sections, then HTML, Markdown, terminal text, JSON, CSV; the migration as CSV and iCalendar."""
