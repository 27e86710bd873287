"""Parts of benchmarks/scan.py."""
