"""The rounds: who may say what when. No I/O, no clock, and no idea which algorithm runs."""
