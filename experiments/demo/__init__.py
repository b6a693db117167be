"""The bundled model: its generated problems, its training text, and the script that trains it."""
