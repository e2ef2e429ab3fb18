//! The mailbox's replay window for Python.

use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::lock;
use crate::core::replay::{self as core, Asked, COLUMN, Fingerprints, First, Sifted};
use crate::core::sending::pick_runs;
use crate::core::verdict::DELIVERED;
use crate::core::wire::Malformed;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ReplayWindow>()?;
    module.add_function(wrap_pyfunction!(replay_keys, module)?)
}

/// (keys, runs, groups, number of the send).
type AskedBatch<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, u32);
type Told<'py> = (Bound<'py, PyBytes>, usize, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pyclass(frozen, module = "snavio._native")]
struct ReplayWindow {
    inner: Mutex<core::ReplayWindow>,
}

#[pymethods]
impl ReplayWindow {
    #[new]
    #[pyo3(signature = (*, capacity, share_per_owner))]
    fn new(capacity: usize, share_per_owner: usize) -> Self {
        Self { inner: Mutex::new(core::ReplayWindow::new(capacity, share_per_owner)) }
    }

    #[pyo3(signature = (batches, now_ns, *, closed = false))]
    fn sift<'py>(
        &self,
        py: Python<'py>,
        batches: Vec<AskedBatch<'py>>,
        now_ns: i64,
        closed: bool,
    ) -> PyResult<Vec<Told<'py>>> {
        let mut pairs = Vec::with_capacity(batches.len());
        for (keys, runs, groups, send) in &batches {
            let asked = Asked { columns: keys.as_bytes(), groups: groups.as_bytes(), send: *send };
            whole(asked)?;
            pairs.push((asked, runs.as_bytes()));
        }
        let sifted = py.detach(|| self.sift_all(&pairs, now_ns, closed))?;
        let mut told = Vec::with_capacity(batches.len());
        for ((found, cut), (keys, runs, ..)) in sifted.into_iter().zip(&batches) {
            let (keys, runs) = match cut {
                Some(cut) => (PyBytes::new(py, &found.columns), PyBytes::new(py, &cut)),
                None => (keys.clone(), runs.clone()),
            };
            let mut firsts = Vec::with_capacity(found.firsts.len() * 24);
            for (index, first) in &found.firsts {
                let (batch, at, stored_ns) = match first {
                    First::Stored(msg_id, stored_ns) => (-1, *msg_id, *stored_ns),
                    First::Here(batch, at) => (*batch as i32, u64::from(*at), now_ns),
                };
                firsts.extend_from_slice(&index.to_le_bytes());
                firsts.extend_from_slice(&batch.to_le_bytes());
                firsts.extend_from_slice(&at.to_le_bytes());
                firsts.extend_from_slice(&stored_ns.to_le_bytes());
            }
            let (codes, firsts) = (PyBytes::new(py, &found.codes), PyBytes::new(py, &firsts));
            told.push((codes, found.fresh, keys, runs, firsts));
        }
        Ok(told)
    }

    fn remember(
        &self,
        py: Python<'_>,
        keys: &[u8],
        batch_id: u64,
        at_ns: i64,
        window_ns: i64,
    ) -> PyResult<()> {
        whole(Asked::ungrouped(keys))?;
        py.detach(|| lock(&self.inner).remember(keys, batch_id, at_ns, window_ns));
        Ok(())
    }

    fn first(&self, key: &[u8], now_ns: i64) -> Option<(u64, i64)> {
        lock(&self.inner).first(key, now_ns)
    }

    fn room_in_ms(&self) -> u32 {
        lock(&self.inner).room_in_ms()
    }

    fn __len__(&self) -> usize {
        lock(&self.inner).len()
    }
}

impl ReplayWindow {
    /// The findings per batch, and the runs of the new messages unless all of them are new.
    fn sift_all(
        &self,
        pairs: &[(Asked<'_>, &[u8])],
        now_ns: i64,
        closed: bool,
    ) -> PyResult<Vec<(Sifted, Option<Vec<u8>>)>> {
        let asked: Vec<Asked<'_>> = pairs.iter().map(|(asked, _)| *asked).collect();
        let sifted = lock(&self.inner).sift(&asked, now_ns, closed);
        let cut = |(found, (_, runs)): (Sifted, &(Asked<'_>, &[u8]))| {
            if found.fresh == found.codes.len() {
                return Ok((found, None));
            }
            let new = |index: usize| found.codes.get(index) == Some(&DELIVERED);
            let (chosen, count) = pick_runs(runs, new)?;
            if count == found.codes.len() { Ok((found, Some(chosen))) } else { Err(Malformed) }
        };
        sifted.into_iter().zip(pairs).map(cut).collect::<Result<_, Malformed>>().map_err(PyErr::from)
    }
}

fn whole(asked: Asked<'_>) -> PyResult<()> {
    let grouped = asked.groups.is_empty() || asked.groups.len() / 4 == asked.columns.len() / COLUMN;
    if asked.columns.len().is_multiple_of(COLUMN) && grouped {
        return Ok(());
    }
    Err(PyValueError::new_err("keys are not whole columns, or not as many as their groups"))
}

/// Fingerprints of (key, payload) pairs of one scope in one topic.
#[pyfunction]
fn replay_keys<'py>(
    py: Python<'py>,
    secret: [u8; 32],
    topic: &str,
    scope: &str,
    messages: Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
) -> Bound<'py, PyBytes> {
    let mut out = Vec::with_capacity(messages.len() * COLUMN);
    let mut fingerprints = Fingerprints::new(&secret, topic, scope);
    for (key, payload) in &messages {
        fingerprints.put(&mut out, key.as_bytes(), &[], payload.as_bytes());
    }
    PyBytes::new(py, &out)
}
