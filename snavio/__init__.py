"""The library that Snavio's services share, and the SDK. Never imports `services` or `spark`."""
