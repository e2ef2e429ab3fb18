"""Settings from one TOML file, overridden by `SNAVIO_SECTION__KEY`; every mistake is reported at once, at start.

    load(ShieldSettings, "shield", config=path)   -> (MeshSettings, ShieldSettings)      what a service calls
    installed()                                   -> {name: type[Section]}               every section, [mesh] first
    validate_all(path, installed())               -> {name: Section}                     `snavio config validate`
    effective(path, installed())                  -> {name: {key: Setting(value, origin)}}   `snavio config show`
    describe(installed())                         -> (SectionDescription(name, description, keys), …)
                                                     keys: KeyDescription(section, key, type, default, description,
                                                     bounds, wants, secret; .default_toml, .variable)
    default_file(installed()), markdown(installed()) -> the commented snavio.toml, docs/configuration.md

`path` may be None: defaults and environment alone. `environment=` replaces `os.environ`. `origin` is `default`,
`<file>:<line>` or `environment`. Secrets are masked everywhere.

The first three raise `BadConfiguration` (a BadRequest, reason `bad-configuration`). Its text is the whole report,
a line per mistake; `mistakes` has them as values: `Mistake(place, sentence, section, key)` with
`Place(file, line, column, variable)`.

Never fills in a value that the operator misspelled: an unknown section or key is an error with a suggestion.
"""

from snavio.config.describe import KeyDescription, SectionDescription, describe
from snavio.config.loading import Setting, effective, load, validate_all
from snavio.config.manual import default_file, markdown
from snavio.config.mistakes import BadConfiguration, Mistake, SettingLocation
from snavio.config.safety import RULES, SafetyRule
from snavio.config.sections import (
    SECTIONS,
    SERVICES,
    Address,
    InstanceName,
    MeshSettings,
    S,
    Section,
    contradiction,
    installed,
)
