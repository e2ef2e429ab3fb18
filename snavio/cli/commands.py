"""The table of `snavio`'s commands: where each is, and the line that `snavio --help` shows of it.

Never imports one of them.
"""

from __future__ import annotations

from typing import Final

from snavio.cli.group import Entry

RUN, USE, LOOK = "Run a mesh", "Use it", "Look at it"

COMMANDS: Final = (
    Entry("up", "up:up", "Start a mesh on this machine, and show what it does until Ctrl-C.", RUN),
    Entry("down", "up:down", "Stop the mesh that runs on a state folder, wherever it was started.", RUN),
    Entry(
        "demo",
        "demo:demo",
        "Show, in about twenty seconds, what a mesh does: deliver, refuse, and lose nothing.",
        RUN,
    ),
    Entry("serve", "serve:serve", "Run one service in this process, for a supervisor of your own.", RUN),
    Entry(
        "backup",
        "backup:backup",
        "Copy every store into a new folder while the mesh runs, and check the copy.",
        RUN,
    ),
    Entry(
        "restore",
        "backup:restore",
        "Bring a backup back into a state folder that is empty, or whose mesh is stopped.",
        RUN,
    ),
    Entry(
        "store",
        "store:store",
        "Check the stores of an installation, and rescue a damaged one when there is no backup.",
        RUN,
    ),
    Entry("send", "send:send", "Send a signed command, and say what became of it.", USE),
    Entry("recv", "recv:recv", "Receive the commands of a target, and acknowledge them.", USE),
    Entry(
        "register",
        "register:register",
        "Register a tenant's services, targets, routes and rights from a file: all of it, or nothing.",
        USE,
    ),
    Entry("try", "register:try_", "Show what a command would meet, gate by gate, without sending one.", USE),
    Entry("acl", "acl:acl", "See, grant and revoke the rights of sources, now and in the past.", USE),
    Entry("access", "access:access", "Ask a target's owner for a right, and answer requests for one.", USE),
    Entry("enroll", "enroll:enroll", "Get a principal's certificate for a one-time token.", USE),
    Entry("keys", "keys:keys", "See, rotate and retire the HMAC keys that sources sign with.", USE),
    Entry("certs", "certs:certs", "See which certificates are alive, renew and revoke them.", USE),
    Entry("caps", "caps:caps", "Issue, narrow and revoke capabilities for the mailbox.", USE),
    Entry(
        "freeze",
        "freeze:freeze",
        "Stop a source, a target or one command now, and show which instances obey.",
        USE,
    ),
    Entry("unfreeze", "freeze:unfreeze", "Let a source, a target or a command go on.", USE),
    Entry(
        "status",
        "status:status",
        "Show every service of a running mesh: state, memory, CPU, rates, latencies and backlog.",
        LOOK,
    ),
    Entry("explain", "explain:explain", "Show what became of a command, step by step.", LOOK),
    Entry(
        "bans",
        "bans:bans",
        "See which sources are kept off the warm path and why, and let them back.",
        LOOK,
    ),
    Entry("queue", "queue:queue", "See what waits in the mailbox and what is dead, and put it right.", LOOK),
    Entry(
        "snapshot",
        "snapshot:snapshot",
        "See the snapshots that Fast and Shield start from, and check them as they would.",
        LOOK,
    ),
    Entry(
        "archive",
        "archive:archive",
        "See the telemetry that Relay has archived, check it, and query it in SQL.",
        LOOK,
    ),
    Entry("meter", "meter:meter", "Measure what the mesh promises, on a canary tenant of its own.", LOOK),
    Entry(
        "spark",
        "spark:spark",
        "Run Spark jobs over the archive: find abuse, report on service, try a rule on the past.",
        LOOK,
    ),
    Entry(
        "bench",
        "bench:bench",
        "Measure this machine for about ten seconds: sends, batches, latency, receiving.",
        LOOK,
    ),
    Entry("config", "config:config_app", "Show and check the configuration.", LOOK),
    Entry(
        "doctor",
        "doctor:doctor",
        "Check toolchain, native library, state folder, disk, certificates, ports, services and clock.",
        LOOK,
    ),
    Entry("version", "serve:version", "Show what is installed.", LOOK, logs=False),
)
