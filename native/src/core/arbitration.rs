//! Slow's side of an escalated batch: what there is to decide, and sending on what was approved.
//!
//! It approves nothing by itself: a command goes on only under a key that the caller named, and only while it is
//! undecided.

use std::sync::Arc;

use super::bundle::{Bundles, Destination, Send, write_sends};
use super::docket::{Docket, Lane};
use super::frames::Limits;
use super::ledger::Ledger;

/// The caller asked for something that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse(pub &'static str);

/// An opened ArbitrationBatch.
#[derive(Debug)]
pub struct Arbitration {
    frame: Vec<u8>,
    docket: Docket,
    /// Commands by key: those of key k are `members[starts[k]..starts[k + 1]]`.
    members: Vec<u32>,
    starts: Vec<usize>,
    dispatched: bool,
}

impl Arbitration {
    /// Opens a frame; commands that do not parse are decided in the ledger.
    pub fn open(frame: &[u8], limits: &Limits) -> (Self, Ledger) {
        let docket = Docket::open_escalations(frame, limits, "slow");
        let ledger = docket.ledger();
        let mut starts = vec![0];
        let mut sum = 0;
        for lane in &docket.lanes {
            sum += lane.count as usize;
            starts.push(sum);
        }
        let mut members = vec![0; sum];
        let mut next = starts.clone();
        for (index, item) in (0..).zip(&docket.items) {
            if (item.lane as usize) < docket.lanes.len() {
                let place = &mut next[item.lane as usize];
                members[*place] = index;
                *place += 1;
            }
        }
        let frame = if docket.frame_code == 0 { frame.to_vec() } else { Vec::new() };
        (Self { frame, docket, members, starts, dispatched: false }, ledger)
    }

    pub fn budget_ms(&self) -> u32 {
        self.docket.header.budget_ms
    }

    pub fn frame_code(&self) -> u8 {
        self.docket.frame_code
    }

    /// Distinct (source, target, name, reason), in order of first appearance.
    pub fn keys(&self) -> Vec<(&str, &str, &str, u8)> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        let key = |lane: &Lane| {
            let [source, target, name] =
                [lane.source, lane.target, lane.name].map(|span| text(span.of(&self.frame)));
            (source, target, name, lane.reason)
        };
        self.docket.lanes.iter().map(key).collect()
    }

    /// Refuses every undecided command of a key.
    pub fn refuse(
        &self,
        ledger: &mut Ledger,
        key: usize,
        code: u8,
        retry_after_ms: u32,
        detail: &str,
    ) -> Result<Vec<u8>, Misuse> {
        if key >= self.docket.lanes.len() {
            return Err(Misuse("no such key"));
        }
        let members = &self.members[self.starts[key]..self.starts[key + 1]];
        Ok(ledger.close_indices(members.iter().copied(), code, retry_after_ms, detail))
    }

    /// Sends on the undecided commands of the approved keys, as (key, queue, topic); once.
    pub fn dispatch(
        &mut self,
        ledger: &mut Ledger,
        approved: &[(usize, u32, String)],
    ) -> Result<Vec<Send>, Misuse> {
        if self.dispatched {
            return Err(Misuse("dispatched before"));
        }
        let mut order: Vec<&(usize, u32, String)> = approved.iter().collect();
        order.sort_by_key(|(key, _, _)| *key);
        let mut bundles = Bundles::default();
        let mut ways = vec![None; self.docket.lanes.len()];
        for (key, queue, topic) in order {
            let way = ways.get_mut(*key).ok_or(Misuse("no such key"))?;
            if way.is_some() {
                return Err(Misuse("a key is approved twice"));
            }
            *way = Some(bundles.place(Destination { queue: *queue, topic: Arc::from(topic.as_str()) }));
        }
        self.dispatched = true;
        for (index, item) in (0..).zip(&self.docket.items) {
            if let Some(Some(at)) = ways.get(item.lane as usize)
                && ledger.code(index as usize) == 0
            {
                bundles.bundles[*at].1.add(index, item.run, item.raw);
            }
        }
        Ok(write_sends(&self.frame, &self.docket.runs, bundles.bundles, ledger))
    }

    /// A TelemetryBlock with one row per decided command.
    pub fn telemetry(&self, ledger: &Ledger, settled_unix_ns: i64) -> Vec<u8> {
        self.docket.block.write_as(settled_unix_ns, |row| ledger.code(row.index as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::super::dispatch::{Dispatch, RoutePhases};
    use super::super::testing::{batch, command, mangled};
    use super::super::verdict::{ACL_DENY, MALFORMED};
    use super::*;

    fn escalations() -> Vec<u8> {
        let frame = batch(&[
            ("acme/shop", vec![command("bot", "say"), vec![0xff], command("bot", "go")]),
            ("globex/shop", vec![command("bot", "say"), command("bot", "say")]),
        ]);
        Dispatch::new(Limits::MESH, RoutePhases { fresh_ns: 1, stale_ns: 2 }).plan(&frame, 0).escalations
    }

    #[test]
    fn only_approved_and_undecided_commands_go_on() {
        let (mut arbitration, mut ledger) = Arbitration::open(&escalations(), &Limits::MESH);
        let names: Vec<_> = arbitration.keys().iter().map(|key| (key.0, key.2)).collect();
        assert_eq!(names, [("acme/shop", "say"), ("acme/shop", "go"), ("globex/shop", "say")]);
        assert!(arbitration.refuse(&mut ledger, 0, ACL_DENY, 0, "").is_ok());
        let approved = [(2, 0, "acme/bot".to_owned()), (0, 0, "acme/bot".to_owned())];
        let sends = arbitration.dispatch(&mut ledger, &approved).unwrap();
        assert_eq!(sends.iter().map(|send| send.count).collect::<Vec<_>>(), [2]);
        assert_eq!(arbitration.dispatch(&mut ledger, &[]), Err(Misuse("dispatched before")));
        assert_eq!(ledger.codes(), [ACL_DENY, 0, 0, 0]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for frame in mangled(&escalations()) {
            let (mut arbitration, mut ledger) = Arbitration::open(&frame, &Limits::MESH);
            let keys = arbitration.keys().len();
            let approved: Vec<_> = (0..keys).map(|key| (key, 0, "a/b".to_owned())).collect();
            let sent: usize =
                arbitration.dispatch(&mut ledger, &approved).unwrap().iter().map(|send| send.count).sum();
            let refused = ledger.codes().iter().filter(|code| **code == MALFORMED).count();
            assert_eq!(sent + refused, ledger.count());
        }
    }
}
