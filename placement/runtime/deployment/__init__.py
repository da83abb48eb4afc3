"""Placements that leave the project: files that OpenVINO runs, and what loads them."""
