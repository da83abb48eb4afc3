"""Deployed placements: folders that OpenVINO runs, and their loader."""
