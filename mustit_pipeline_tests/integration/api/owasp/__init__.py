"""What was tried of each item of the OWASP API Security Top 10 of 2023, and what answered."""
