"""Figures: axes in, axes out. One question per module, one style for all (`style`)."""
