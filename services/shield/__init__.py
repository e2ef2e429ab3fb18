"""Shield lets in only well-formed, timely, correctly signed, unreplayed commands of sources in good standing."""
