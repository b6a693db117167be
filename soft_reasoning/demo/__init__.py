"""The bundled model and its word problems, as files; ``experiments/demo`` generates and trains them."""
