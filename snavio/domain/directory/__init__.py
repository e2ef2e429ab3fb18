"""The kinds of entry that Registry stores, one file per group, and the rules for writing them.

Values are valid once built: BadRequest names the field and the rule that it breaks. Pure; denies by default.
"""

from snavio.domain.directory.access import AccessRequest, AclEntry, RequestState
from snavio.domain.directory.alerts import AlertChannel, ChannelKind
from snavio.domain.directory.changes import Change, DirectoryView, Draft
from snavio.domain.directory.endpoint import Endpoint, EndpointMode
from snavio.domain.directory.kinds import KINDS, V, Value, expiry_of, is_over, revive, shape_of
from snavio.domain.directory.lists import Ban, BanList, Suspension, every_source
from snavio.domain.directory.overlay import Difference, Overlay
from snavio.domain.directory.proposal import BanProposal, ProposalState
from snavio.domain.directory.quota import SourceQuota
from snavio.domain.directory.route import (
    DEFAULT_DRAIN_SECONDS,
    DedupeMode,
    DispatchMode,
    Fairness,
    Limit,
    Profile,
    ProfileLimit,
    QueueKind,
    Route,
)
from snavio.domain.directory.rules import (
    acts_for,
    require_name,
    require_operator,
    require_tenant,
    require_text,
)
from snavio.domain.directory.standing import suspension_of
from snavio.domain.directory.tenancy import Principal, Service, Target, Tenant, require_source
from snavio.domain.directory.topic_rule import TopicRule, WhenFull
