"""Views of a derivation: text, LaTeX, JSON, MathML."""
