//! Dispatch for Python.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use super::ledger::Ledger;
use super::plan::Plan;
use super::{lock, without_gil_if_large};
use crate::core::directory::{BanList, Limited, Now, Route, Terms};
use crate::core::dispatch as core;
use crate::core::fairness::Fairness;
use crate::core::frames::Limits;
use crate::core::grants::Grant;
use crate::core::phases::{Phases, Profile, ProfilePhases};
use crate::core::unknown::Bounds;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Dispatch>()
}

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
/// Fresh and stale ages of a right: critical, moderate, low.
const DEFAULT_ACL_MS: [(u32, u32); 3] = [(2_000, 4_000), (10_000, 20_000), (30_000, 90_000)];

/// (window seconds, dominant share, competing share, competitors, minimum volume, ban seconds)
type ToldFairness = (u32, f64, f64, u32, u32, u32);

#[pyclass(frozen, module = "snavio._native")]
struct Dispatch {
    inner: core::Dispatch,
    /// Terms of the route that was set last: most routes have the same terms, and so they share the memory.
    told: Mutex<Arc<Terms>>,
}

#[pymethods]
impl Dispatch {
    #[new]
    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    #[pyo3(signature = (
        *,
        max_batch_bytes = Limits::MESH.max_batch_bytes,
        max_batch_commands = Limits::MESH.max_batch_commands,
        route_fresh_ms = 60_000,
        route_stale_ms = 180_000,
        acl_ms = DEFAULT_ACL_MS,
        shorten_permille = 0,
        cold_only = false,
        duplicates = 65_536,
        dedupe_ms = 300_000,
        unknown_routes = 65_536,
        unknown_routes_per_source = 1024,
        unknown_ms = 2000,
        counted_sources = 262_144,
    ))]
    fn new(
        max_batch_bytes: usize,
        max_batch_commands: usize,
        route_fresh_ms: u32,
        route_stale_ms: u32,
        acl_ms: [(u32, u32); 3],
        shorten_permille: u16,
        cold_only: bool,
        duplicates: usize,
        dedupe_ms: u32,
        unknown_routes: usize,
        unknown_routes_per_source: usize,
        unknown_ms: u32,
        counted_sources: usize,
    ) -> PyResult<Self> {
        if route_fresh_ms > route_stale_ms {
            return Err(PyValueError::new_err("route_fresh_ms is longer than route_stale_ms"));
        }
        if acl_ms.iter().any(|(fresh_ms, stale_ms)| fresh_ms > stale_ms) {
            return Err(PyValueError::new_err("acl_ms: a right is fresh first and stale later"));
        }
        if shorten_permille > 1000 {
            return Err(PyValueError::new_err("shorten_permille is more than all of it"));
        }
        let limits = Limits { max_batch_bytes, max_batch_commands };
        let phases = |(fresh_ms, stale_ms)| Phases {
            fresh_ns: i64::from(fresh_ms) * MS,
            stale_ns: i64::from(stale_ms) * MS,
        };
        let [critical, moderate, low] = acl_ms.map(phases);
        let rules = core::Rules {
            routes: phases((route_fresh_ms, route_stale_ms)),
            rights: ProfilePhases { critical, moderate, low },
            shorten: shorten_permille,
            cold_only,
            duplicates,
            dedupe_ns: i64::from(dedupe_ms) * MS,
            unknown: Bounds {
                routes: unknown_routes,
                routes_per_source: unknown_routes_per_source,
                life_ns: i64::from(unknown_ms) * MS,
            },
            counted_sources,
        };
        Ok(Self { inner: core::Dispatch::new(limits, rules), told: Mutex::default() })
    }

    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    #[pyo3(signature = (
        target, name, *, queue, topic, profile, strict, cold_only = false, limited = false, shadow = false,
        fairness = None
    ))]
    fn put_route(
        &self,
        target: &str,
        name: &str,
        queue: u32,
        topic: &str,
        profile: u32,
        strict: bool,
        cold_only: bool,
        limited: bool,
        shadow: bool,
        fairness: Option<ToldFairness>,
    ) -> PyResult<()> {
        let limited = read_limited(limited, shadow);
        let fairness = fairness.map_or(Ok(Fairness::default()), read_fairness)?;
        let terms = self.shared(Terms { cold_only, limited, fairness });
        let route = Route::new(queue, Arc::from(topic), Profile::from_wire(profile), strict, terms);
        self.inner.put_route(target, name, route);
        Ok(())
    }

    fn drop_route(&self, target: &str, name: &str) {
        self.inner.drop_route(target, name);
    }

    #[pyo3(signature = (source, target, name, version, *, profile = 0, ends_unix_ns = 0))]
    fn allow(&self, source: &str, target: &str, name: &str, version: u64, profile: u32, ends_unix_ns: u64) {
        let profile = (profile != 0).then(|| Profile::from_wire(profile));
        self.inner.allow_until(source, target, name, version, profile, ends_unix_ns);
    }

    #[pyo3(signature = (source, target, name, *, limited, shadow = false))]
    fn limit_source(&self, source: &str, target: &str, name: &str, limited: bool, shadow: bool) {
        self.inner.limit_source(source, target, name, read_limited(limited, shadow));
    }

    fn heard_time(&self, unix_ns: u64, mono_ns: i64) {
        self.inner.heard_time(unix_ns, mono_ns);
    }

    fn deny(&self, source: &str, target: &str, name: &str) {
        self.inner.deny(source, target, name);
    }

    #[pyo3(signature = (ban_list, source, target, name, *, until_mono_ns))]
    fn put_ban(
        &self,
        ban_list: u32,
        source: &str,
        target: &str,
        name: &str,
        until_mono_ns: i64,
    ) -> PyResult<()> {
        self.inner.ban(read_list(ban_list)?, source, read_route(target, name), until_mono_ns);
        Ok(())
    }

    fn lift_ban(&self, ban_list: u32, source: &str, target: &str, name: &str) -> PyResult<()> {
        self.inner.lift(read_list(ban_list)?, source, read_route(target, name));
        Ok(())
    }

    fn set_cold_only(&self, cold_only: bool) {
        self.inner.set_cold_only(cold_only);
    }

    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.inner.clear());
    }

    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    #[pyo3(signature = (
        routes_part, acl_part, *, bans_part = None, terms_part = None, now_unix_ns = 0, now_mono_ns = 0
    ))]
    fn load_snapshot(
        &self,
        py: Python<'_>,
        routes_part: &[u8],
        acl_part: &[u8],
        bans_part: Option<&[u8]>,
        terms_part: Option<&[u8]>,
        now_unix_ns: u64,
        now_mono_ns: i64,
    ) -> PyResult<u64> {
        let now = Now { unix_ns: now_unix_ns, mono_ns: now_mono_ns };
        Ok(py.detach(|| self.inner.load_snapshot(routes_part, acl_part, bans_part, terms_part, now))?)
    }

    fn renewed(&self, read_mono_ns: i64) {
        self.inner.renewed(read_mono_ns);
    }

    fn age_ns(&self, now_mono_ns: i64) -> Option<i64> {
        self.inner.age_ns(now_mono_ns)
    }

    #[allow(clippy::too_many_arguments)] // Keywords in Python.
    #[pyo3(signature = (target, name, *, permits, interval, ends_mono_ns, now_mono_ns, source = ""))]
    fn grant(
        &self,
        target: &str,
        name: &str,
        permits: u64,
        interval: u64,
        ends_mono_ns: i64,
        now_mono_ns: i64,
        source: &str,
    ) -> bool {
        let grant = Grant { permits, ends_mono_ns, interval };
        self.inner.grant(source, target, name, grant, now_mono_ns)
    }

    #[pyo3(signature = (*, now_mono_ns))]
    fn needs(&self, py: Python<'_>, now_mono_ns: i64) -> Vec<(String, String, String, u64, u64, u64)> {
        py.detach(|| {
            let told = |(key, need): (core::LimitKey, crate::core::grants::Need)| {
                let [source, target, name] = key.map(String::from);
                (source, target, name, need.wanted, need.debt, need.left)
            };
            self.inner.needs(now_mono_ns).into_iter().map(told).collect()
        })
    }

    #[pyo3(signature = (*, now_mono_ns))]
    fn give_up(&self, py: Python<'_>, now_mono_ns: i64) -> Vec<(String, String, String, u64, u64)> {
        py.detach(|| {
            let told = |(key, grant): (core::LimitKey, Grant)| {
                let [source, target, name] = key.map(String::from);
                (source, target, name, grant.interval, grant.permits)
            };
            self.inner.give_up(now_mono_ns).into_iter().map(told).collect()
        })
    }

    #[pyo3(signature = (batch, *, now_mono_ns))]
    fn plan(&self, py: Python<'_>, batch: PyBackedBytes, now_mono_ns: i64) -> PyResult<Plan> {
        let plan = without_gil_if_large(py, batch.len(), || self.inner.plan(&batch, now_mono_ns));
        Plan::wrap(py, plan, batch)
    }

    #[pyo3(signature = (plan, *, now_mono_ns))]
    fn learn(&self, py: Python<'_>, plan: &Plan, now_mono_ns: i64) {
        let ledger: &Ledger = plan.ledger.get();
        py.detach(|| self.inner.learn(&plan.lessons, &ledger.lock(), now_mono_ns));
    }

    #[pyo3(signature = (*, now_mono_ns))]
    fn sweep(&self, py: Python<'_>, now_mono_ns: i64) {
        py.detach(|| self.inner.sweep(now_mono_ns));
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        for (name, count) in self.inner.counters() {
            told.set_item(name, count)?;
        }
        Ok(told)
    }
}

impl Dispatch {
    fn shared(&self, terms: Terms) -> Arc<Terms> {
        let mut told = lock(&self.told);
        if **told != terms {
            *told = Arc::new(terms);
        }
        Arc::clone(&told)
    }
}

fn read_fairness(told: ToldFairness) -> PyResult<Fairness> {
    let (window, dominant_share, competing_share, competitors, minimum_volume, ban) = told;
    if ![dominant_share, competing_share].iter().all(|share| (0.0..=1.0).contains(share)) {
        return Err(PyValueError::new_err("fairness: a share is from 0 to 1"));
    }
    let [window_ns, ban_ns] = [window, ban].map(|seconds| i64::from(seconds) * SECOND);
    Ok(Fairness { window_ns, dominant_share, competing_share, competitors, minimum_volume, ban_ns })
}

fn read_limited(limited: bool, shadow: bool) -> Limited {
    match (limited, shadow) {
        (false, _) => Limited::No,
        (true, true) => Limited::Watched,
        (true, false) => Limited::Yes,
    }
}

fn read_list(list: u32) -> PyResult<BanList> {
    match list {
        1 => Ok(BanList::WarmBan),
        2 => Ok(BanList::ColdOnly),
        3 => Ok(BanList::Frozen),
        _ => Err(PyValueError::new_err("list: must be 1 (warm ban), 2 (cold-only) or 3 (frozen)")),
    }
}

fn read_route<'a>(target: &'a str, name: &'a str) -> Option<(&'a str, &'a str)> {
    if target.is_empty() && name.is_empty() { None } else { Some((target, name)) }
}
