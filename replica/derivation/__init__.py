"""The replica calculation as a graph of checked steps."""
