"""The report of a run: one HTML file with its figures, plots and every trace."""

from longrein.report.build import write_report

__all__ = ["write_report"]
