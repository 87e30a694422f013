"""What serves all chapters: outline, exercises and their checks, workbook, notebooks as files, plots."""
