"""Sends files through the main job over HTTP: intent, POST to object storage, completion, ready."""
