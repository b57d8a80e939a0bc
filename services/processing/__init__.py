"""The processing context: uploads become verified masters and renditions."""
