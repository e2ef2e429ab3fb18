//! Everything that thinks. Takes bytes and times, returns verdicts; knows nothing of Python.

pub mod admission;
pub mod command;
pub mod keys;
pub mod nonces;
pub mod runs;
pub mod signing;
pub mod submission;
pub mod timestamp;

// Decisions about whole batches.
pub mod arbitration;
pub mod columns;
pub mod counters;
pub mod deciding;
#[cfg(test)]
mod deciding_tests;
pub mod directory;
pub mod dispatch;
#[cfg(test)]
mod dispatch_tests;
pub mod duplicates;
pub mod envelope;
pub mod escalation;
pub mod fairness;
pub mod flood;
#[allow(clippy::should_implement_trait)] // As in `wire`.
pub mod frames;
pub mod grants;
pub mod intern;
pub mod leased_batches;
pub mod ledger;
pub mod message_groups;
pub mod new_messages;
pub mod own_terms;
pub mod page;
pub mod parsed_batch;
pub mod part_buffer;
pub mod phases;
pub mod plan;
pub mod reframer;
pub mod replay;
pub mod seals;
pub mod sending;
pub mod split;
pub mod telemetry;
pub mod tenants;
#[cfg(test)]
mod testing;
pub mod unknown;
pub mod verdict;
pub mod wal;

// Snapshots of the directory.
pub mod records;
pub mod snapshot;

// Canonical form, signatures, ids.
pub mod canonical;
pub mod crypto;

#[allow(clippy::should_implement_trait)] // `Fields::next` can fail, so it is no Iterator.
pub mod wire;
