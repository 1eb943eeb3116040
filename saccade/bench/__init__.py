"""Measurements, and the plots of the documentation."""
