"""Numerics that several methods need, of arrays alone: minima, losses, ridges, matrices."""
