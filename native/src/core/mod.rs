//! Everything that thinks. Takes bytes and times, returns verdicts; knows nothing of Python.

// native-a1 adds its modules (admission, command, nonces, timestamp) below this line.

// native-a2: decisions about whole batches.
pub mod ledger;
pub mod telemetry;
pub mod verdict;

// native-a3: canonical form, signatures, ids.
pub mod canonical;
pub mod crypto;

#[allow(clippy::should_implement_trait)] // `Fields::next` can fail, so it is no Iterator.
pub mod wire;
