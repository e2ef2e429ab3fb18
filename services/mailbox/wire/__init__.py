"""The gRPC face: checks a request, calls the part that decides, serialises its answer."""
