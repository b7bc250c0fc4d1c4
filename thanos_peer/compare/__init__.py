"""Methods side by side: the same problem, network and start; what each takes to get how near."""
