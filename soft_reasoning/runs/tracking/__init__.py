"""Trackers of experiments, behind one protocol: TensorBoard, Weights & Biases and MLflow."""
