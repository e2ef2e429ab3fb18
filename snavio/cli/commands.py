"""The table of `snavio`'s commands: where each is, and the line that `snavio --help` shows of it.

Never imports one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from snavio.cli.group import CommandEntry

QUIET: Final = ("version",)
"""Commands that run no code that logs."""

# Name, `module:attribute` under snavio.cli, and the first line of its help, under the title of its panel.
_TABLE: Final = """
[Run a mesh]
up       up:up             Start a mesh on this machine, and show what it does until Ctrl-C.
down     up:down           Stop the mesh that runs on a state folder, wherever it was started.
demo     demo:demo         Show, in about twenty seconds, what a mesh does: deliver, refuse, and lose nothing.
serve    serve:serve       Run one service in this process, for a supervisor of your own.
edge     edge:edge         Run an HTTP edge: webhooks in, messages out; write and check its file.
backup   backup:backup     Copy every store into a new folder while the mesh runs, and check the copy.
restore  backup:restore    Bring a backup back into a state folder that is empty, or whose mesh is stopped.
store    store:store       Check the stores of an installation, and rescue a damaged one when there is no backup.
[Use it]
send     send:send         Send a signed command, and say what became of it.
recv     recv:recv         Receive the commands of a target, and acknowledge them.
register register:register Register a tenant's services, targets, routes and rights from a file: all of it, or nothing.
try      register:try_     Show what a command would meet, gate by gate, without sending one.
acl      acl:acl           See, grant and revoke the rights of sources, now and in the past.
access   access:access     Ask a target's owner for a right, and answer requests for one.
join     join:join         Join a mesh with an invitation, and make it the one that commands talk to.
context  context:contexts  See, add and choose the meshes that commands talk to.
whoami   whoami:whoami     Show who you are to the mesh, of which tenant, until when, and what you may do.
init     init:init         Write a registration file, commented, from a few answers.
tenant   entry_groups:tenant Invite and see tenants, and all that belongs to one.
service  entry_groups:service See and delete the services of a tenant.
principal entry_groups:principal See and delete the principals that act for a tenant.
target   entry_groups:target See and delete the targets that a tenant has claimed.
route    entry_groups:route See and delete routes, with their limits.
quota    entry_groups:quota See the quotas of sources that are kept off the warm path.
enroll   enroll:enroll     Get a principal's certificate for a one-time token.
keys     keys:keys         See, rotate and retire the HMAC keys that sources sign with.
certs    certs:certs       See which certificates are alive, renew and revoke them.
caps     caps:caps         Issue, narrow and revoke capabilities for the mailbox.
freeze   freeze:freeze     Stop a source, a target or one command now, and show which instances obey.
unfreeze freeze:unfreeze   Let a source, a target or a command go on.
suspend  suspend:suspend   Keep a source, or a whole tenant, out until an end or until it is resumed.
resume   suspend:resume    Let a suspended source or tenant in again before its end.
[Look at it]
tail     tail:tail         Follow a tenant's signed events as they come, verified here.
status   status:status     Show every service of a running mesh: state, memory, CPU, rates, latencies and backlog.
explain  explain:explain   Show what became of a command, step by step.
bans     bans:bans         See which sources are kept off the warm path and why, and let them back.
queue    queue:queue       See what waits in the mailbox and what is dead, and put it right.
routes   routes:routes     See how the queues of routes are: what waits, for how long, who receives, and what is wrong.
alerts   alerts:alerts     See what was told to whom, acknowledge it, and try and mute the channels of alerts.
log      change_log:log    Read the log of changes of the directory: who changed what, when and why.
logs     service_logs:logs Show what a service of the mesh on this machine has logged.
snapshot snapshot:snapshot See the snapshots that Fast and Shield start from, and check them as they would.
relay    relay:relay       See how far telemetry has come, and send a tenant's envelopes to its queue again.
archive  archive:archive   See the telemetry that Relay has archived, check it, and query it in SQL.
meter    meter:meter       Measure what the mesh promises, on a canary tenant of its own.
spark    spark:spark       Run Spark jobs over the archive: find abuse, report on service, try a rule on the past.
bench    bench:bench       Measure this machine for about ten seconds: sends, batches, latency, receiving.
config   config:config_app Show and check the configuration.
doctor   doctor:doctor     Check toolchain, native library, state folder, disk, certificates, ports, services and clock.
version  serve:version     Show what is installed.
"""


# Below `snavio edge`, in the same form.
_EDGE_TABLE: Final = """
init     edge_init:init      Write a commented Hookaidofile for webhooks of github, stripe, gitlab or your own sender.
run      edge_run:run       Run a Hookaidofile until Ctrl-C; SIGHUP reads it again, all or nothing.
adopt    edge_adopt:adopt   Join a mesh with an invitation, as an edge of its tenant.
try      edge_views:attempt Show what the running edge would answer to a request; nothing is stored.
explain  edge_views:explain Show what became of a request, step by step, also of one that was refused.
recent   edge_views:recent  Show the newest requests; `snavio edge explain` tells more of one.
ls       edge_views:ls      List the routes of the running edge with what waits in each.
orphans  edge_views:orphans List topics that the file has no more, with what nobody fetches.
config   edge_config:config  Format, check and compare Hookaidofiles; docs/hookaidofile.md has every directive.
"""


def _entries(table: str) -> Iterator[CommandEntry]:
    panel = ""
    for row in table.strip().splitlines():
        if row.startswith("["):
            panel = row.strip("[]")
        else:
            name, place, summary = row.split(maxsplit=2)
            yield CommandEntry(name, place, summary, panel or None, logs=name not in QUIET)


COMMANDS: Final = tuple(_entries(_TABLE))
EDGE_COMMANDS: Final = tuple(_entries(_EDGE_TABLE))
