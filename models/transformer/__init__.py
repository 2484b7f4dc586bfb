"""A small transformer encoder that classifies images by their patches."""
