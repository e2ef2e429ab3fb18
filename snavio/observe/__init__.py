"""What operators see from outside: metrics, traces, and the health port."""
