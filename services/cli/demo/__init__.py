"""The photo and the people that a fresh local stack is shown with."""
