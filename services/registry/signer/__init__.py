"""Registry's calls to Signer: keys, tokens and rights that follow the directory."""
