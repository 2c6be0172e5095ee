"""`portolan doctor`: checks of a machine and of an installation, with remedies."""
