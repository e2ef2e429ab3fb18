"""Registry's servicers: protobuf in, decisions, protobuf out."""
