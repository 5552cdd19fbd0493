"""The closed intermediate representation between SymPy and every printer."""
