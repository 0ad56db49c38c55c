"""Fakes of seams, as real as their tests need."""
