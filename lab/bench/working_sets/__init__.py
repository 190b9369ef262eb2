"""Agents' working sets: finished interactions and contexts computed twice, with admission by memory and without."""
