"""Files to begin with, one per sender: a route that verifies, with comments that say what to enter where.

Never has a secret in it: each one is named by the variable that holds it.
"""

from __future__ import annotations

from typing import Final

_HEAD: Final = """\
# A Hookaidofile for webhooks of {sender}.
# Check it with `snavio edge config validate`; docs/hookaidofile.md has every directive.

# The port that {sender} posts to. In front of the internet, put TLS here or in a proxy before it.
ingress {{
  listen :8080
  # tls {{ cert_file /etc/edge/cert.pem; key_file /etc/edge/key.pem }}
}}

# The port that your workers fetch from. They show this token: `Authorization: Bearer ...`.
pull_api {{
  listen 127.0.0.1:9443
  auth token env:EDGE_PULL_TOKEN
}}
"""

_GITHUB: Final = """
# In the repository: Settings, Webhooks, Add webhook.
#   Payload URL   https://<your host>/webhooks/github
#   Content type  application/json
#   Secret        a long random text, which the variable GITHUB_WEBHOOK_SECRET holds here
/webhooks/github {
  # match { header "X-GitHub-Event" "push" }
  auth hmac { provider github; secret env:GITHUB_WEBHOOK_SECRET }
  # GitHub signs no time. "Redeliver" sends the same id, which is then answered as a duplicate.
  idempotency header X-GitHub-Delivery window 24h
  pull { path /github }
}
"""

_STRIPE: Final = """
# In the dashboard: Developers, Webhooks, Add endpoint.
#   Endpoint URL    https://<your host>/webhooks/stripe
#   Signing secret  shown afterwards; the variable STRIPE_WEBHOOK_SECRET holds it here
/webhooks/stripe {
  # Stripe signs the time: a request is refused when it is older than five minutes, or comes twice.
  auth hmac { provider stripe; secret env:STRIPE_WEBHOOK_SECRET }
  pull { path /stripe }
}
"""

_GITLAB: Final = """
# In the project: Settings, Webhooks, Add new webhook.
#   URL           https://<your host>/webhooks/gitlab
#   Secret token  a long random text, which the variable GITLAB_WEBHOOK_TOKEN holds here
/webhooks/gitlab {
  # GitLab shows a token and signs nothing: use TLS, or everybody on the way can read it.
  # What GitLab sends again has the same Idempotency-Key, and is then answered as a duplicate.
  auth hmac { provider gitlab; secret env:GITLAB_WEBHOOK_TOKEN }
  pull { path /gitlab }
}
"""

_GENERIC: Final = """
# Your own scripts. Each request carries three headers, and the signature covers method, path, time and body:
#   X-Timestamp  seconds since 1970
#   X-Nonce      a text that is never used again
#   X-Signature  hex of HMAC-SHA256 over these lines, with the secret as key:
#                v2, method, path with its query, X-Timestamp, X-Nonce, hex of SHA-256 of the body
secrets {
  # For a new key, add a second secret and a second `auth hmac secret_ref` below; both verify while both are valid.
  secret "scripts-1" {
    value env:EDGE_SCRIPTS_SECRET
    valid_from "2026-01-01T00:00:00Z"
  }
}

/webhooks/scripts {
  auth hmac secret_ref "scripts-1" { tolerance 5m }
  rate_limit { rps 50; burst 100 }
  pull { path /scripts }
}
"""

STARTERS: Final[dict[str, str]] = {
    "github": _HEAD.format(sender="GitHub") + _GITHUB,
    "stripe": _HEAD.format(sender="Stripe") + _STRIPE,
    "gitlab": _HEAD.format(sender="GitLab") + _GITLAB,
    "generic": _HEAD.format(sender="your own scripts") + _GENERIC,
}
"""By the name that `snavio edge init` takes."""
