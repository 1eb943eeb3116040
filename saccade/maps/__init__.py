"""Looking inside: taps on every attention, and one renderer for what they saw."""
