"""Sessions and grading on a Ray cluster. Ray is loaded only where it is used."""
