"""Which feed-forward neurons fire in right answers (paper, Appendix "Neuron Activation Analysis")."""
