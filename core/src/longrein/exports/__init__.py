"""Take a run's rollouts elsewhere: traces for openenv, trajectories for viewers (ATIF), chat messages for SFT."""

from longrein.exports.run import FORMATS, ExportReport, Format, export

__all__ = ["FORMATS", "ExportReport", "Format", "export"]
