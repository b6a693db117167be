"""The bundled model, its word problems and the prompts that it was trained on."""
