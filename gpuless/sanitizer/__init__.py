"""Find mistakes in a kernel that seems to work: races, divergence, bad indices, garbage, missing results."""

from gpuless.sanitizer.findings import Finding, Report
from gpuless.sanitizer.sanitize import sanitize

__all__ = ["Finding", "Report", "sanitize"]
